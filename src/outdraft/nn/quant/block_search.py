"""Least squares for a group of weights: the scale, or scale and least value, of the integers that stand for it.

    scale            x = d q            q in low .. high, or the levels of a table
    scale and least  x = d q + m        q in 0 .. high

For each of some candidates the group is rounded, and those integers give the best d (and m) in closed form; the
candidate of the least weighted square error is kept. Groups are the last dimension: [..., n] -> [..., 1].
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

Round = Callable[[Tensor], Tensor]  # to the nearest level, in a new tensor


def to_whole(low: int, high: int) -> Round:
    """Levels are all whole numbers from `low` to `high`."""
    return lambda x: x.round().clamp_(low, high)


def to_levels(levels: Tensor) -> Round:
    """Levels are these whole numbers, in their order."""
    return lambda x: levels.to(x).index_select(0, index_of(levels, x).flatten()).view_as(x)


def index_of(levels: Tensor, x: Tensor) -> Tensor:
    """Which level is nearest. Halfway between two lies a multiple of 1 / 2: a table of such steps knows it."""
    low, high = int(levels[0]), int(levels[-1])
    steps = torch.arange(low, high, 0.5).add_(0.25)
    nearest = (steps.unsqueeze(1) - levels).abs().argmin(1).int().to(x.device)
    at = ((x - low) * 2).floor_().clamp_(0, len(steps) - 1).int()
    return nearest.index_select(0, at.flatten()).view_as(x)


def inverse(scale: Tensor) -> Tensor:
    """1 / d, and 0 where d is 0 or no number."""
    return torch.where(scale.abs() > 0, 1 / scale, 0)


def find_scale(x: Tensor, weights: Tensor, nearest: Round, tops: Seq[float]) -> Tensor:
    """d. `tops`: the levels, whole or not, that the largest number of a group is tried on."""
    peak = x.gather(-1, x.abs().argmax(-1, keepdim=True))
    step, weighted = inverse(peak), weights * x
    scale = torch.zeros_like(peak)
    best = torch.zeros_like(peak)
    for top in tops:
        q = nearest(x * (step * top))
        cross, square = (weighted * q).sum(-1, keepdim=True), (weights * q.square()).sum(-1, keepdim=True)
        gain = cross.square() / square  # NaN, which is never better, where all integers are 0
        better = gain > best
        scale, best = torch.where(better, cross / square, scale), torch.where(better, gain, best)
    return scale


def find_scale_and_least(
    x: Tensor, weights: Tensor, high: int, tops: Seq[float], *, below_zero: bool
) -> tuple[Tensor, Tensor]:
    """d and m. `tops`: where the largest number of a group is tried; `below_zero`: m is at most 0."""
    least, peak = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    if below_zero:
        least = least.clamp(max=0)
    first, step = least, inverse(peak - least)
    scale, best = (peak - least) / high, torch.full_like(least, torch.inf)
    all_w, all_x = weights.sum(-1, keepdim=True), (weights * x).sum(-1, keepdim=True)
    for top in tops:
        q = ((x - first) * (step * top)).round_().clamp_(0, high)
        wq = weights * q
        one, two, cross = (part.sum(-1, keepdim=True) for part in (wq, wq * q, wq * x))
        spread = all_w * two - one.square()
        d, m = (all_w * cross - all_x * one) / spread, (two * all_x - one * cross) / spread
        if below_zero:
            d, m = torch.where(m > 0, cross / two, d), m.clamp(max=0)
        error = (weights * (d * q + m - x).square()).sum(-1, keepdim=True)
        better = error < best  # never where it is NaN: all integers are the same
        scale, least = torch.where(better, d, scale), torch.where(better, m, least)
        best = torch.where(better, error, best)
    return scale, least
