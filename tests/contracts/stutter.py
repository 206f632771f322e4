"""A drafter for drafters made of drafters: repeats the pending token, of sequences that it has begun."""

from dataclasses import dataclass

from outdraft.core.draft import chain
from outdraft.core.drafter import Traits
from outdraft.core.method import CONTRACT, DrafterMethod
from outdraft.core.target import Needs
from outdraft.drafters.shared.limits import usable_depth


@dataclass(frozen=True, slots=True, kw_only=True)
class StutterOptions:
    """None."""


class StutterDrafter:
    """Asserts that its verbs are called in order."""

    needs = Needs()
    traits = Traits()

    def __init__(self):
        self.observed = {}  # passes seen of each sequence

    def begin(self, seqs):
        self.observed |= {seq.id: 0 for seq in seqs}

    def propose(self, seqs, budgets):
        assert all(self.observed[seq.id] or len(seq.tokens) == 1 for seq in seqs)
        return [
            chain([seq.pending] * (1 + usable_depth(seq, budget))) for seq, budget in zip(seqs, budgets, strict=True)
        ]

    def observe(self, seen):
        for one in seen:
            self.observed[one.seq.id] += 1

    def end(self, seqs):
        for seq in seqs:
            del self.observed[seq.id]


METHOD = DrafterMethod(
    name="stutter",
    summary="repeat the pending token",
    build=lambda options, port: StutterDrafter(),
    options=StutterOptions,
    contract=CONTRACT,
)
