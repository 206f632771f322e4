"""Locally typical sampling: only tokens about as surprising as the distribution expects.

Meister, Pimentel, Wiher and Cotterell, "Locally typical sampling", 2022, https://arxiv.org/abs/2202.00666. With
H = -sum p log p, tokens are ordered by | H + log p(x) |, the least first, and the first of them that make up the mass
tau stay; a token stays if the mass before it is less than tau, and ties at the edge all stay. Data in: distributions,
or scores and how far they may move; data out: distributions, or which tokens stay.
"""

import torch
from torch import Tensor


def typical_rows(distributions: Tensor, mass: float) -> Tensor:
    """[n, V] -> [n, V]: each row without its untypical tokens, a distribution again.

    Row by row, so that a row's bits do not depend on how many there are.
    """
    return torch.stack([_typical(row, mass) for row in distributions]) if len(distributions) else distributions


def _typical(distribution: Tensor, mass: float) -> Tensor:
    """One row [V]. A token of probability 0 stays at 0."""
    off = (torch.special.entr(distribution).sum() + torch.log(distribution)).abs()
    ordered, order = torch.sort(off, stable=True)
    before = distribution[order].cumsum(0) - distribution[order]
    edge = torch.where(before < _least(mass, before), ordered, -torch.inf).amax()
    kept = torch.where(off <= edge, distribution, 0.0)
    return kept / kept.sum()


def typical_kept(scores: Tensor, sure: Tensor, possible: Tensor, mass: float, bound: float) -> tuple[Tensor, Tensor]:
    """[V] bool twice: which tokens stay however the scores move, and which may stay.

    `scores` [V]: logs of the distribution, up to a constant, of which no difference moves by more than `bound`; `sure`
    and `possible`: what certainly, and perhaps, is in the distribution before this step. Probabilities and entropy are
    replaced by intervals that hold all their values.
    """
    low = scores - scores[possible].logsumexp(0) - bound  # of log p
    high = (scores - scores[sure].logsumexp(0) + bound).clamp(max=0) if bool(sure.any()) else torch.zeros_like(scores)
    edges = torch.stack((_entropy(low), _entropy(high)))
    peak = (low <= -1) & (high >= -1)  # -p log p is largest at p = 1 / e
    least = edges.amin(0)[sure].sum()
    most = torch.where(peak, torch.exp(torch.tensor(-1.0)).to(edges), edges.amax(0))[possible].sum()
    near, far = least + low, most + high  # H + log p lies between
    below = torch.where((near <= 0) & (far >= 0), 0.0, torch.minimum(near.abs(), far.abs()))
    above = torch.maximum(near.abs(), far.abs())
    most_before = _mass_before(below, above, torch.where(possible, high.exp(), 0.0), inclusive=True) - high.exp()
    least_before = _mass_before(above, below, torch.where(sure, low.exp(), 0.0), inclusive=False)
    mass = _least(mass, scores)
    return sure & (most_before < mass), possible & (least_before < mass)


def _least(mass: float, like: Tensor) -> float:
    """A mass that is not rounded to 0, with which no token would stay."""
    return max(mass, torch.finfo(like.dtype).tiny)


def _entropy(log_p: Tensor) -> Tensor:
    """-p log p of each token, in nats; 0 where p is 0."""
    return torch.where(log_p > -torch.inf, -log_p * log_p.exp(), 0.0)


def _mass_before(offs: Tensor, limits: Tensor, masses: Tensor, *, inclusive: bool) -> Tensor:
    """[V]: for each token the mass of all tokens whose off lies below its limit, or at it too."""
    ordered, order = torch.sort(offs)
    upto = torch.cat((masses.new_zeros(1), masses[order].cumsum(0)))
    return upto[torch.searchsorted(ordered, limits.contiguous(), right=inclusive)]
