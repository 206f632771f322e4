"""Plain decoding, as a drafter: no guess, one token a target pass. The baseline of every comparison.

It runs through the same loop, counters and clock as every method, so a speed-up is measured against the same code.
Data in: sequences; data out: drafts of node 0 alone.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen, Traits
from outdraft.core.method import DrafterMethod
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.models.networks.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneOptions:
    """Plain decoding has no settings."""


class NoDrafter:
    """Proposes the pending token alone in every round."""

    needs = Needs()
    traits = Traits(guesses=False)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """Node 0 alone, whatever the budget."""
        return [chain([seq.pending]) for seq in seqs]

    def observe(self, seen: Seq[Seen]) -> None:
        """What a pass showed is not needed: nothing is learned."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence."""


def build(options: NoneOptions, port: TargetPort) -> NoDrafter:
    """The baseline, which needs nothing of the target."""
    return NoDrafter()


METHOD = DrafterMethod(
    name="none",
    summary="plain decoding, the baseline: nothing is drafted",
    build=build,
    options=NoneOptions,
    shape_of=lambda options: "nothing",
)
