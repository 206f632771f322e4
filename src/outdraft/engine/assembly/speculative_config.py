"""vLLM's `speculative_config` dictionary, so that a configuration that users have already written works here.

    {"method": "draft_model", "model": "path", "num_speculative_tokens": 5}
    {"method": "ngram", "prompt_lookup_max": 4, "num_speculative_tokens": 8}

Four keys are the engine's; every other belongs to the chosen drafter, under its option's name or one of its aliases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outdraft.core.checked import check_value
from outdraft.core.errors import ConfigError
from outdraft.core.near_miss import near_miss
from outdraft.core.registry import find, option_names
from outdraft.core.shown import shown

_OURS = ("method", "num_speculative_tokens", "rejection_sample_method", "policy")


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


def from_mapping(config: Mapping[str, Any]) -> Speculation:
    """Read the dictionary; unknown keys are refused with the near miss."""
    config = check_value("speculative_config", config, Mapping)
    if "method" not in config:
        raise ConfigError("speculative_config names no 'method': say which drafter (`outdraft methods` lists them)")
    method = find("drafter", config["method"])
    options = {key: value for key, value in config.items() if key not in _OURS}
    known = option_names(method)
    for key in options:
        if key not in known:
            listed = ", ".join(sorted({*_OURS, *known}))
            raise ConfigError(
                f"unknown key {shown(key)} in speculative_config{near_miss(key, [*_OURS, *known])}; "
                f"with method {method.name!r} it takes: {listed}"
            )
    rule = check_value("rejection_sample_method", config.get("rejection_sample_method", "auto"), str)
    return Speculation(
        drafter=config["method"],
        drafter_options=options,
        verifier="auto" if rule == "standard" else rule,
        policy=check_value("policy", config.get("policy"), str | None),
        num_speculative_tokens=check_value("num_speculative_tokens", config.get("num_speculative_tokens"), int | None),
    )
