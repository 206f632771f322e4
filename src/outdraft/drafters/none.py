"""Plain decoding, as a drafter: no guess, one token a target pass. The baseline of every comparison.

It runs through the same loop, counters and clock as every method, so a speed-up is measured against the same code.
Data in: sequences; data out: drafts of node 0 alone.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen
from outdraft.core.policy import Budget
from outdraft.core.registry import Method
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneOptions:
    """Plain decoding has no settings."""


class NoDrafter:
    """Proposes nothing."""

    needs = Needs()

    def begin(self, seqs: Seq[Sequence]) -> None:
        """No state."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """Node 0 alone, whatever the budget."""
        return [chain([seq.pending]) for seq in seqs]

    def observe(self, seen: Seq[Seen]) -> None:
        """Nothing to learn."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state."""


def build(options: NoneOptions, port: TargetPort) -> NoDrafter:
    """The baseline."""
    return NoDrafter()


METHOD = Method(
    name="none",
    kind="drafter",
    summary="plain decoding, the baseline: nothing is drafted",
    build=build,
    options=NoneOptions,
    shapes=(),
)
