"""The bonus token: what follows a path that was accepted to a leaf, from p there.

A drafter that works beside the pass may have drafted a token x behind the last node already, drawn from q:

    keep x with min(1, p(x) / q(x)), else draw from (p - q)_+, normalised

so the token has exactly the distribution p, and is x as often as any rule of that distribution allows. x is drawn by
the drafter's own coins from what stands before it alone; so whether the path is accepted says nothing about it.
Reference: token-wise rejection sampling, Leviathan, Kalman and Matias, 2022, https://arxiv.org/abs/2211.17192.
"""

from collections.abc import Callable

from torch import Tensor

from outdraft.options.errors import CapabilityError
from outdraft.verify.shared.case import Case
from outdraft.verify.shared.chain import ratio
from outdraft.verify.shared.proposal import Proposal, normalised


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
