"""Drafters with one fault each: what the contract suite must notice. Each is a `METHOD` that a row can name."""

from dataclasses import dataclass

import torch

from outdraft.core.draft import Draft, Role, chain
from outdraft.core.drafter import Traits
from outdraft.core.method import CONTRACT, DrafterMethod
from outdraft.core.target import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """None."""


class Repeater:
    """Sound: guesses that the last token goes on for ever. The faults below are made of it."""

    needs = Needs()
    traits = Traits()

    def __init__(self):
        self.texts = {}

    def begin(self, seqs):
        for seq in seqs:
            self.texts[seq.id] = []

    def propose(self, seqs, budgets):
        return [self.guess(seq, self.size(budget)) for seq, budget in zip(seqs, budgets, strict=True)]

    def size(self, budget):
        return budget.depth if budget.nodes is None else min(budget.depth, budget.nodes)

    def guess(self, seq, size):
        return chain([seq.pending] * (size + 1))

    def observe(self, seen):
        for one in seen:
            self.texts[one.seq.id].append(one.start)

    def end(self, seqs):
        for seq in seqs:
            del self.texts[seq.id]


class Leaky(Repeater):
    """Forgets to forget."""

    def end(self, seqs):
        pass


class Overdrawn(Repeater):
    """One token deeper than allowed."""

    def size(self, budget):
        return super().size(budget) + 1 if budget.depth else 0


class Eager(Repeater):
    """Drafts on a budget of nothing."""

    def size(self, budget):
        return max(1, super().size(budget))


class Swapped(Repeater):
    """Hands the drafts back in another order than it was asked."""

    def propose(self, seqs, budgets):
        return super().propose(seqs, budgets)[::-1]


class Drawing(Repeater):
    """Sound: draws its guesses, and says from what."""

    def guess(self, seq, size):
        q, coins = torch.full((size + 1, 7), 1 / 7), seq.draft_coins(seq)
        return chain([seq.pending, *(coins.draw(q[0], depth, depth)[0] for depth in range(size))], q)


class SoftClaim(Repeater):
    """A deterministic guess with a soft q."""

    def guess(self, seq, size):
        return chain([seq.pending] * (size + 1), torch.full((size + 1, 7), 1 / 7))


class Peeking(Repeater):
    """An acceptable node that sees a probe: its logits are not the target's."""

    def guess(self, seq, size):
        if not size:
            return chain([seq.pending])
        mask = torch.ones(3, 3, dtype=torch.bool).tril()
        roles = torch.tensor([Role.VERIFY, Role.PROBE, Role.VERIFY])
        tokens = torch.tensor([seq.pending] * 3)
        return Draft(tokens=tokens, parents=torch.tensor([-1, 0, 0]), roles=roles, mask=mask)


def method(drafter: type) -> DrafterMethod:
    return DrafterMethod(
        name=drafter.__name__,
        summary=drafter.__doc__ or "",
        build=lambda options, port: drafter(),
        options=NoOptions,
        contract=CONTRACT,
    )


SOUND, LEAKY, OVERDRAWN, EAGER = method(Repeater), method(Leaky), method(Overdrawn), method(Eager)
SWAPPED, DRAWING, SOFT_CLAIM, PEEKING = method(Swapped), method(Drawing), method(SoftClaim), method(Peeking)
