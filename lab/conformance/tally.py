"""What a cell of the matrix saw: tokens drafted and accepted, commits of two tokens or more, and drafts cut short.

A cell in which nothing is accepted proves nothing about acceptance, so it fails, whatever its texts say. So does one in
which no draft is cut short: there the drafter was the target itself, and what tells them apart (a budget of keys, few
bits, a layer left out) was not active.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.events import StepEvent
from outdraft.core.policy import Budget, Policy, spared_by
from outdraft.core.sequence import Sequence

LEAST_ACCEPTED, LEAST_RUNS, LEAST_CUT = 20, 5, 3


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counted over all engines of one cell."""

    drafted: int = 0
    accepted: int = 0
    runs: int = 0  # commits of two tokens or more
    cut: int = 0  # drafts in which a guess was rejected

    def reset(self) -> None:
        self.drafted = self.accepted = self.runs = self.cut = 0

    def plus(self, other: "Tally") -> "Tally":
        """The counts of both, added."""
        return Tally(
            drafted=self.drafted + other.drafted,
            accepted=self.accepted + other.accepted,
            runs=self.runs + other.runs,
            cut=self.cut + other.cut,
        )

    @property
    def is_enough(self) -> bool:
        """Whether the cell has seen acceptance at work, and rejection."""
        return self.accepted >= LEAST_ACCEPTED and self.runs >= LEAST_RUNS and self.cut >= LEAST_CUT


class Counted:
    """A policy whose rounds are counted. It sees every round that may have drafted."""

    def __init__(self, policy: Policy, tally: Tally) -> None:
        self._policy, self._tally = policy, tally

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        return self._policy.plan(seqs)

    def spare(self, seq: Sequence, crowd: int) -> frozenset[int]:
        return spared_by(self._policy, seq, crowd)

    def update(self, events: Seq[StepEvent]) -> None:
        """The policy's own; every event is counted."""
        for event in events:
            self._tally.drafted += event.num_draft_tokens
            self._tally.accepted += event.num_accepted
            self._tally.runs += event.num_accepted > 0 and len(event.tokens) > 1
            self._tally.cut += event.num_draft_tokens > 0 and event.rejected
        self._policy.update(events)

    def end(self, seqs: Seq[Sequence]) -> None:
        self._policy.end(seqs)
