"""Hold several drafters, ask the one that the budget names, and keep all of them in step with the text.

    budget.arm  0 -> ngram          every one sees begin, observe and end; only the named one is asked to guess,
                1 -> draft_model    and none on a budget of 0

A drafter that is not asked does next to nothing: memories of their own catch up with the text when they are next asked.
One that rests leaves its text (`core/leaving.py`), and hidden states that no other drafter wants are not kept.
What "auto", "routing" and "bandit" choose among (docs/policies.md). Data in: sequences and budgets; data out: drafts.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Drafter, Seen, Traits, arm_of
from outdraft.core.leaving import LeavingDrafter
from outdraft.core.method import DrafterMethod
from outdraft.core.policy import Arm, Budget
from outdraft.core.registry import AnyDrafter
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.drafters.shared.composed.nested import build_nested, joined_needs, shape_of_nested
from outdraft.drafters.shared.renewing import newest
from outdraft.models.networks.port import TargetPort
from outdraft.options.base import DraftShape
from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralOptions:
    """Which drafters. Raises `ConfigError` unless there is at least one."""

    # the drafters: names, or {"method": NAME, OPTION: VALUE}; the policy chooses one of them in every round
    drafters: Seq[str | Mapping[str, Any]] = ("ngram", "lookahead")

    def __post_init__(self) -> None:
        if isinstance(self.drafters, str | Mapping) or not self.drafters:
            raise ConfigError(f"drafters={self.drafters!r}: give a list, for example ['ngram', {{'method': 'eagle'}}]")


class SeveralDrafter:
    """One arm for each inner drafter, in the order given."""

    def __init__(self, inner: Seq[tuple[Drafter, AnyDrafter]], shapes: Seq[DraftShape]) -> None:
        self.drafters = [drafter for drafter, _ in inner]
        self.methods = [method for _, method in inner]
        self.shapes = shapes  # what each of them proposes
        self.traits = Traits(inner=tuple(self.drafters))
        self._held = [LeavingDrafter(drafter, arm) for arm, drafter in enumerate(self.drafters)]
        self._all = frozenset(range(len(inner)))
        self._needs = {self._all: self._join(self._all)}  # by who follows any text

    @property
    def needs(self) -> Needs:
        """What those need who follow a text now; before the first one, what all need."""
        wanted = self._all
        for arm, one in enumerate(self._held):
            if one.rests:
                wanted -= {arm}
        if wanted not in self._needs:
            self._needs[wanted] = replace(self._join(wanted), resume_layer=self._needs[self._all].resume_layer)
        return self._needs[wanted]

    def _join(self, arms: frozenset[int]) -> Needs:
        if not arms:
            return Needs()
        chosen = sorted(arms)
        return joined_needs([self.drafters[arm] for arm in chosen], [self.methods[arm].name for arm in chosen])

    def begin(self, seqs: Seq[Sequence]) -> None:
        for one in self._held:
            one.begin(seqs)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """Each sequence's guess by the drafter that its budget names; raises `ConfigError` if there is none."""
        places = dict[int, list[int]]()  # arm -> of whom it is asked
        for i, (seq, budget) in enumerate(zip(seqs, budgets, strict=True)):
            for arm in budget.resting & self._all:
                self._held[arm].leave(seq)
            if budget.depth > 0:
                if budget.arm >= len(self.drafters):
                    raise ConfigError(f"the policy asks for arm {budget.arm}, there are {len(self.drafters)} drafters")
                if seq.id in self._held[budget.arm].following:
                    places.setdefault(budget.arm, []).append(i)
        drafts = dict[int, Draft]()
        for arm, own in sorted(places.items()):
            made = self.drafters[arm].propose([seqs[i] for i in own], [budgets[i] for i in own])
            drafts.update(zip(own, made, strict=True))
        return [drafts.get(i) or chain(seq.tokens[-1:]) for i, seq in enumerate(seqs)]

    def observe(self, seen: Seq[Seen]) -> None:
        """For all that follow the text, whichever guessed."""
        for one in self._held:
            one.observe(seen)

    def end(self, seqs: Seq[Sequence]) -> None:
        for one in self._held:
            one.end(seqs)


def build(options: SeveralOptions, port: TargetPort) -> SeveralDrafter:
    """Build every inner drafter over the same target. Raises `CapabilityError` where one would blind another."""
    built = [build_nested(described, port) for described in options.drafters]
    return SeveralDrafter(built, [shape_of_nested([described]) for described in options.drafters])


def arms(drafter: SeveralDrafter) -> tuple[Arm, ...]:
    """The inner drafters, by name; a repeated one is numbered."""
    names = [method.name for method in drafter.methods]
    numbered = [
        name if names.count(name) == 1 else f"{name}#{1 + names[:i].count(name)}" for i, name in enumerate(names)
    ]
    listed = zip(drafter.drafters, numbered, drafter.shapes, strict=True)
    return tuple(replace(arm_of(one, name), shape=one.traits.shape or shape) for one, name, shape in listed)


def describe(drafter: SeveralDrafter) -> dict[str, Any]:
    """What each inner drafter says of itself, by arm."""
    inner = zip(arms(drafter), drafter.drafters, drafter.methods, strict=True)
    return {"arms": {arm.name: dict(method.describe(newest(one))) for arm, one, method in inner}}


METHOD = DrafterMethod(
    name="several",
    summary="several drafters side by side; the policy chooses among them every round",
    build=build,
    options=SeveralOptions,
    describe=describe,
    arms=arms,
    shape_of=lambda options: shape_of_nested(options.drafters),
)
