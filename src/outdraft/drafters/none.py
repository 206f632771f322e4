"""Plain decoding, as a drafter: no guess, one token a target pass. The baseline of every comparison.

It runs through the same loop, counters and clock as every method, so a speed-up is measured against the same code.
Data in: sequences; data out: drafts of node 0 alone.
"""

from dataclasses import dataclass

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.plain import OneByOne
from outdraft.models.networks.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneOptions:
    """Plain decoding has no settings."""


class NoDrafter(OneByOne):
    """Proposes the pending token alone in every round."""

    traits = Traits(guesses=False)

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """Node 0 alone, whatever the budget."""
        return chain([seq.pending])


def build(options: NoneOptions, port: TargetPort | None) -> NoDrafter:
    """The baseline, which needs nothing of the target: an engine opens no port for it."""
    return NoDrafter()


METHOD = DrafterMethod(
    name="none",
    summary="plain decoding, the baseline: nothing is drafted",
    build=build,
    options=NoneOptions,
    shape_of=lambda options: "nothing",
)
