"""The distribution that a node's next child was drawn from, given the siblings already tried, and what p has in excess
of it.

    sampled without replacement    q with the tried tokens zeroed, renormalised; nothing left: no further child counts
    sampled independently          each from a row of q of its own
    a deterministic guess          one-hot at the child itself, so that the excess is p without that token

Reference: Lemma A of every rejection rule: accept x with a(x), else draw from p - a q (normalised), and the
distribution is p. So it is with the bonus token behind a leaf, where a drafter that works beside the pass may have
drafted x from q already: x is kept with min(1, p(x) / q(x)). It was drawn by the drafter's own coins from what stands
before it alone; so whether the path is accepted says nothing about it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from outdraft.options.errors import CapabilityError
from outdraft.verify.shared.case import Case


class Proposal:
    """Consumed sibling by sibling, in drawing order."""

    def __init__(self, row: Tensor | None) -> None:
        self.row = row  # [V]; None: deterministic
        self._owned = False

    def mass(self, token: int) -> float:
        """Probability that the next sibling was this token."""
        return 1.0 if self.row is None else float(self.row[token])

    def excess(self, weighted: Tensor, token: int) -> Tensor:
        """(weighted - distribution)_+ [V], where `weighted` is the target's distribution times a weight of at most
        1."""
        if self.row is None:
            return without(weighted, [token])
        return (weighted - self.row).clamp_(min=0)

    def drop(self, token: int) -> None:
        """`token` was tried and rejected: the sibling after it was drawn from what is left."""
        if self.row is None:
            return
        if not self._owned:
            self.row, self._owned = self.row.clone(), True
        self.row[token] = 0
        total = self.row.sum()
        if total > 0:
            self.row /= total


class Proposals:
    """The distributions of one node's children: siblings of one row of q share what is left of it."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._of_row: dict[int, Proposal] = {}

    def of(self, child: int) -> Proposal:
        """What `child` was drawn from, after the siblings before it."""
        q, row = self._case.q, self._case.row(child)
        if row not in self._of_row:
            self._of_row[row] = Proposal(None if q is None else q[row])
        return self._of_row[row]


def normalised(excess: Tensor, fallback: Tensor) -> tuple[Tensor, float]:
    """The residual distribution [V] and the mass it had.

    No mass at all can only be rounding (p equals q, and a sure child was turned down by the last bit): the target's own
    distribution stands in.
    """
    total = float(excess.sum())
    return (excess / total, total) if total > 0 else (fallback, 0.0)


def prefix_weight(surplus: float, weight: float) -> float:
    """S / (S + 1 - a): how surely a prefix of weight a is kept once what follows is rejected; S: the residual mass.

    1 if p and q agree so well that both terms are 0; exactly 1 wherever a is 1, as it is at the root.
    """
    whole = surplus + (1 - weight)
    return surplus / whole if whole > 0 else 1.0


def without(distribution: Tensor, tokens: list[int]) -> Tensor:
    """A copy of `distribution` [V] with no mass on `tokens`; not renormalised."""
    distribution = distribution.clone()
    distribution[torch.tensor(tokens, dtype=torch.long, device=distribution.device)] = 0
    return distribution


def ratio(p: float, q: float) -> float:
    """min(1, p / q): 0 for a token that p forbids, and for one that q says was never drawn."""
    return min(1.0, p / q) if q > 0 else 0.0


def draw_bonus(case: Case, node: int) -> int:
    """The token after `node`, a leaf."""
    p, depth, guess = case.p[node], case.tree.depths[node], case.continuation
    last = len(case.tree.parents) - 1
    if guess is None or node != last:
        return case.coins.draw(p, depth)
    if not 0 <= guess.token < p.shape[0] or (guess.q is not None and guess.q.shape != p.shape):
        raise CapabilityError(
            f"behind the draft of sequence {case.seq.id} stands token {guess.token}, drawn from "
            f"{None if guess.q is None else list(guess.q.shape)}: the target has {p.shape[0]} ids, from 0 on"
        )
    coins = case.coins
    return keep_or_redraw(
        p, guess.token, guess.q, lambda chance: coins.flip(chance, last + 1), lambda rest: coins.draw(rest, depth)
    )


def keep_or_redraw(
    p: Tensor, token: int, q: Tensor | None, flip: Callable[[float], bool], draw: Callable[[Tensor], int]
) -> int:
    """A token with the distribution p [V]: `token`, which was drawn from q [V] (None: it was no draw), or another."""
    proposal = Proposal(None if q is None else q.to(p))
    if flip(ratio(float(p[token]), proposal.mass(token))):
        return token
    rest, _ = normalised(proposal.excess(p, token), p)
    return draw(rest)
