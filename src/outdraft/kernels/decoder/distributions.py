"""Distributions from logits and draws from distributions: native twins of `sampling.warp` and of `sampling.coins`.

Data in: rows [N, V] or a distribution [V], float32 on a CPU; data out: distributions, tokens. None where the kernels do
not run (`torch` does it then), and where the numbers are not finite or a distribution has no mass (the caller says so
in its own words).
"""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.kernels.declared import CDistribution
from outdraft.kernels.library import native_for

_LEAST = 1e-30  # what a float32 distinguishes from 0
_MANY = 512  # draws from one distribution: sorting all of it is quicker then


@dataclass(frozen=True, slots=True, kw_only=True)
class Warp:
    """How logits become a distribution; 0 and 1 leave a step out."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def truncates(self) -> bool:
        """Whether it leaves out tokens."""
        return bool(self.min_p or self.top_k or self.top_p < 1)

    def describe(self) -> CDistribution:
        """For the C interface, whose numbers are smaller."""
        return CDistribution(
            max(self.temperature, _LEAST), max(self.top_p, _LEAST), self.min_p, min(self.top_k, 2**31 - 1)
        )


def warp_rows(logits: Tensor, warp: Warp) -> Tensor | None:
    """[N, V] -> [N, V]: the softmax at a temperature, then min-p, top-k and top-p, each row by itself."""
    if (found := native_for(logits)) is None:
        return None
    native, kind = found
    distribution = torch.empty_like(logits)
    how = warp.describe()
    made = native.od_distributions(logits.data_ptr(), *logits.shape, ctypes.byref(how), distribution.data_ptr(), kind)
    return distribution if made else None


def race(distribution: Tensor, key: int, count: int = 1) -> list[int] | None:
    """The first `count` of the exponential race over `distribution` [V] on the noise of `key`; fewer if fewer have any
    mass."""
    if count > _MANY or (found := native_for(distribution)) is None:
        return None
    native, kind = found
    count = min(count, distribution.shape[0])
    winners, made = (ctypes.c_int32 * count)(), ctypes.c_int32()
    native.od_race(distribution.data_ptr(), distribution.shape[0], key, count, winners, ctypes.byref(made), kind)
    return winners[: made.value] or None
