"""Drafter, rule and policy with their options: as they were named (`Speculation`), and found and typed (`Combination`).

Words -> Speculation -> Combination -> parts over a target
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from outdraft.core.registry import AnyDrafter, AnyPolicy, AnyRule, find, make_options
from outdraft.options.base import PolicyOptions, Quantization, RoundedOptions
from outdraft.options.checked import check_value
from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One plug-in and its options, as they are written; without a name they are for the one that runs anyway."""

    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What drafts, how much, and which rule judges."""

    drafter: str = "none"
    drafter_options: Mapping[str, Any] = field(default_factory=dict)
    verifier: str = "auto"
    verifier_options: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None  # None: auto; fixed with a num_speculative_tokens, or where nothing is ever drafted
    policy_options: Mapping[str, Any] = field(default_factory=dict)
    num_speculative_tokens: int | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)  # `Recipe.describe()` of the recipe it came from


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Three plug-ins, each with its options."""

    drafter: AnyDrafter
    drafter_options: Any
    rule: AnyRule
    rule_options: Any
    policy: AnyPolicy
    policy_options: PolicyOptions
    recipe: Mapping[str, Any]  # `Recipe.describe()` of the recipe that it came from
    # where the user did not choose what drafts: the same with no role filled, and plain decoding; None: it was chosen
    instead: "tuple[Combination, Combination] | None" = None

    @property
    def quantization(self) -> Quantization | None:
        """Of the draft's own weights; None: it has none that can be rounded."""
        options = self.drafter_options
        return options.quantization if isinstance(options, RoundedOptions) else None

    def require_own_weights(self) -> None:
        """Raise `ConfigError` where the draft has no weights to put on 4 bits, or another rounding was asked for."""
        rounding = self.quantization
        if rounding in ("auto", "int4"):
            return
        if rounding is not None:
            why = f"quantization={rounding!r} is given: leave one out"
        else:
            lacks = "no drafter is named" if self.instead else f"{self.drafter.name!r} has none"
            why = f"{lacks}: take a drafter with the option 'quantization', or another precision"
        raise ConfigError(f"precision='draft-int4' rounds the draft model, and {why}")

    def rounded(self, quantization: Quantization) -> "Combination":
        """The same with the draft's weights rounded so; it must have some."""
        assert isinstance(self.drafter_options, RoundedOptions)
        return replace(self, drafter_options=replace(self.drafter_options, quantization=quantization))


def combine(speculation: Speculation) -> Combination:
    """Find the plug-ins and read their options. Raises `ConfigError` naming what is wrong with them."""
    drafter, rule = find("drafter", speculation.drafter), find("verifier", speculation.verifier)
    drafter_options = make_options(drafter, speculation.drafter_options)
    pacing = speculation.policy
    if pacing is None:
        is_open = speculation.num_speculative_tokens is None and drafter.shape_of(drafter_options) != "nothing"
        pacing = "auto" if is_open else "fixed"
    policy = find("policy", pacing)
    policy_options = make_options(policy, speculation.policy_options)
    count = check_value("num_speculative_tokens", speculation.num_speculative_tokens, int | None)
    if count is not None:
        policy_options = replace(policy_options, num_speculative_tokens=count)
    return Combination(
        drafter=drafter,
        drafter_options=drafter_options,
        rule=rule,
        rule_options=make_options(rule, speculation.verifier_options),
        policy=policy,
        policy_options=policy_options,
        recipe=speculation.recipe,
    )
