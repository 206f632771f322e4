"""Hold several drafters, ask the one that the budget names, and keep all of them in step with the text.

    budget.arm  0 -> ngram          every one sees begin, observe and end; only the named one is asked to guess,
                1 -> draft_model    and none on a budget of 0

A drafter that is not asked does next to nothing: memories of their own catch up with the text when they are next asked.
What "auto", "routing" and "bandit" choose among (docs/policies.md). Data in: sequences and budgets; data out: drafts.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Drafter, Seen, Traits, arm_of
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Arm, Budget
from outdraft.core.registry import AnyDrafter
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.composed.nested import build_nested, joined_needs
from outdraft.models.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralOptions:
    """Which drafters. Raises `ConfigError` unless there is at least one."""

    drafters: Seq[str | Mapping[str, Any]] = ("ngram", "lookahead")  # names, or {"method": name, option: value, ...}

    def __post_init__(self) -> None:
        if isinstance(self.drafters, str | Mapping) or not self.drafters:
            raise ConfigError(f"drafters={self.drafters!r}: give a list, for example ['ngram', {{'method': 'eagle'}}]")


class SeveralDrafter:
    """One arm for each inner drafter, in the order given."""

    def __init__(self, inner: Seq[tuple[Drafter, AnyDrafter]]) -> None:
        self.drafters = [drafter for drafter, _ in inner]
        self.methods = [method for _, method in inner]
        self.needs = joined_needs(self.drafters, [method.name for method in self.methods])

    @property
    def traits(self) -> Traits:
        """All of them are asked, one at a time."""
        return Traits(inner=tuple(self.drafters))

    def begin(self, seqs: Seq[Sequence]) -> None:
        for drafter in self.drafters:
            drafter.begin(seqs)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """Each sequence's guess by the drafter that its budget names; raises `ConfigError` if there is none."""
        drafts = [chain([seq.pending]) for seq in seqs]
        for arm in sorted({budget.arm for budget in budgets if budget.depth > 0}):
            if arm >= len(self.drafters):
                raise ConfigError(f"the policy asks for arm {arm}, there are {len(self.drafters)} drafters")
            own = [i for i, budget in enumerate(budgets) if budget.depth > 0 and budget.arm == arm]
            made = self.drafters[arm].propose([seqs[i] for i in own], [budgets[i] for i in own])
            for i, draft in zip(own, made, strict=True):
                drafts[i] = draft
        return drafts

    def observe(self, seen: Seq[Seen]) -> None:
        """For all, whoever guessed."""
        for drafter in self.drafters:
            drafter.observe(seen)

    def end(self, seqs: Seq[Sequence]) -> None:
        for drafter in self.drafters:
            drafter.end(seqs)


def build(options: SeveralOptions, port: TargetPort) -> SeveralDrafter:
    """Build every inner drafter over the same target. Raises `CapabilityError` where one would blind another."""
    return SeveralDrafter([build_nested(described, port) for described in options.drafters])


def arms(drafter: SeveralDrafter) -> tuple[Arm, ...]:
    """The inner drafters, by name; a repeated one is numbered."""
    names = [method.name for method in drafter.methods]
    numbered = [
        name if names.count(name) == 1 else f"{name}#{1 + names[:i].count(name)}" for i, name in enumerate(names)
    ]
    return tuple(arm_of(inner, name) for inner, name in zip(drafter.drafters, numbered, strict=True))


def describe(drafter: SeveralDrafter) -> dict[str, Any]:
    """What each inner drafter says of itself, by arm."""
    inner = zip(arms(drafter), drafter.drafters, drafter.methods, strict=True)
    return {"arms": {arm.name: dict(method.describe(one)) for arm, one, method in inner}}
