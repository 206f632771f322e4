"""Budgets within what a request allows, and the two common forms of a policy.

    SameBudget       one budget for every sequence and round
    BudgetByState    a state of each sequence, which its guesses change; the budget follows from it

Data in: sequences and events; data out: one budget each.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from outdraft.core.events import StepEvent
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions

Options = TypeVar("Options", bound=PolicyOptions)
State = TypeVar("State")


def allowed(seq: Sequence, depth: int) -> int:
    """At most `depth`: a round emits up to depth + 1 tokens, and 0 in the request is plain decoding."""
    wanted = seq.request.most_drafted
    if wanted is not None and wanted < depth:
        depth = wanted
    return max(0, min(depth, seq.room - 1))


@dataclass(eq=False)
class SameBudget:
    """`depth`, and the other fields of the budget. `request_decides`: a request that asks for a depth gets that."""

    depth: int
    request_decides: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The same limits for each sequence; never more than can still be emitted."""
        depths = [self.depth] * len(seqs)
        if self.request_decides:
            asked = [seq.request.most_drafted for seq in seqs]
            depths = [self.depth if own is None else own for own in asked]
        return [Budget(depth=allowed(seq, k), **self.others) for seq, k in zip(seqs, depths, strict=True)]

    def update(self, events: Seq[StepEvent]) -> None:
        """What became of a guess does not change the next plan."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence."""


class BudgetByState(ABC, Generic[Options, State]):
    """A policy says how a state begins, which budget it gives, and what a round makes of it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._states: dict[int, State] = {}

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        budgets = []
        for seq in seqs:
            state = self._states.get(seq.id)
            if state is None:
                state = self._states[seq.id] = self._new()
            budgets.append(self._budget(seq, state))
        return budgets

    def update(self, events: Seq[StepEvent]) -> None:
        for event in events:
            if (state := self._states.get(event.seq_id)) is not None:
                self._states[event.seq_id] = self._learn(state, event)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._states.pop(seq.id, None)

    @abstractmethod
    def _new(self) -> State:
        """Of a sequence that has had no round."""

    @abstractmethod
    def _budget(self, seq: Sequence, state: State) -> Budget:
        """What the state lets it guess."""

    @abstractmethod
    def _learn(self, state: State, event: StepEvent) -> State:
        """The state behind a round; perhaps one in which nothing was drafted (`draft_depth` 0)."""
