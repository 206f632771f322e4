"""The best token of each row of logits: the native twin of `argmax` (the best few: `top.py`).

Data in: logits [N, V] float32 on a CPU; data out: plain numbers. None where the kernels do not run (`torch` does it
then) or where a row's largest value is not finite (the caller says so in its own words).
"""

import ctypes

import torch
from torch import Tensor

from outdraft.kernels.library import native_for


def best_distribution(logits: Tensor) -> Tensor | None:
    """The one-hot distributions of the best tokens: [N, V]."""
    distribution = torch.empty_like(logits)
    return None if best_tokens(logits, distribution) is None else distribution


def best_tokens(logits: Tensor, distribution: Tensor | None = None) -> list[int] | None:
    """The index of the largest entry of each row; of equal ones the first. `distribution` [N, V] is filled."""
    if (native_and_kind := native_for(logits)) is None:
        return None
    native, kind = native_and_kind
    rows, size = logits.shape
    found = (ctypes.c_int32 * rows)()
    place = distribution.data_ptr() if distribution is not None else None
    native.od_best_tokens(logits.data_ptr(), rows, size, found, place, kind)
    tokens = found[:]
    return None if -1 in tokens else tokens
