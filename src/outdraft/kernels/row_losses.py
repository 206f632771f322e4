"""The losses between rows of logits with their gradient: native twin of `learn.losses`, in one reading of both rows.

PyTorch reads and writes a chunk of logits some twenty times for one loss and its gradient, which is what training a
draft on a CPU mostly waits for. Data in: rows of logits on a CPU; data out: losses, the mass that would be accepted,
the gradient. None where the kernels do not run, and where nothing at all would be accepted and that one's logarithm is
asked for.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.kernels.declared import CRowLosses
from outdraft.kernels.library import check, native_for

# What the kernel calls the losses that it knows; their sum is what a row costs.
_NAMES = {
    "forward_kl": "kl",
    "soft_cross_entropy": "cross",
    "total_variation": "tv",
    "log_acceptance": "log_accepted",
    "hybrid": "hybrid",
    "cross_entropy": "text",
    "sequence_kd": "text",
}


_FORMATS = (torch.bfloat16, torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLosses:
    """What n rows cost, and what would be accepted of each."""

    losses: Tensor  # [n] float32
    mass: Tensor  # [n] sum of min(p, q), p over all that the target may write
    gradient: Tensor | None  # [n, V] of sum(losses * heavy) by the draft's logits, in their format


def knows(weights: Mapping[str, float]) -> bool:
    """Whether there is a kernel for each of these losses."""
    return all(name in _NAMES for name in weights)


def row_losses(
    p: Tensor,
    whole: Tensor,
    at: Tensor,
    q: Tensor,
    said: Tensor,
    heavy: Tensor,
    weights: Mapping[str, float],
    *,
    learns: bool,
) -> RowLosses | None:
    """Logits q [n, V] of the draft beside rows `at` [n] of the target's logits p [m, V] and of `whole` [m].

    `whole`: the logarithm of what the target's vocabulary sums up to. `said` [n]: the text's tokens, -1: none of these.
    `heavy` [n]: the rows' weights. `learns`: whether the gradient is wanted.
    """
    if native_for(q, *_FORMATS) is None or (found := native_for(p)) is None:
        return None
    native, kind = found
    told: dict[str, float] = {}
    for name, weight in weights.items():
        told[_NAMES[name]] = told.get(_NAMES[name], 0.0) + weight
    given = {"p": p, "whole": whole.float(), "at": at.long(), "q": q, "said": said.long(), "heavy": heavy.float()}
    given = {name: one.contiguous() for name, one in given.items()}
    losses, mass = torch.empty(len(q)), torch.empty(len(q))
    gradient = torch.empty_like(q) if learns else None
    places = {**given, "losses": losses, "mass": mass} | ({} if gradient is None else {"gradient": gradient})
    described = CRowLosses(
        *q.shape, q.dtype == torch.bfloat16, **told, **{name: one.data_ptr() for name, one in places.items()}
    )
    made = native.od_row_losses(ctypes.byref(described), torch.get_num_threads(), kind)
    return RowLosses(losses=losses, mass=mass, gradient=gradient) if made else None


def log_sums(logits: Tensor) -> Tensor:
    """The logarithm of what each row's exponentials sum up to: [n, V] -> [n]. Here PyTorch does what kernels cannot."""
    if (found := native_for(logits, *_FORMATS)) is None:
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return wide.amax(-1) - torch.log_softmax(wide, -1).amax(-1)  # on a CPU 13 times as fast as `logsumexp`
    native, kind = found
    sums = torch.empty(len(logits))
    given = logits.data_ptr(), logits.dtype == torch.bfloat16, *logits.shape, sums.data_ptr()
    check(native.od_log_sums(*given, torch.get_num_threads(), kind))
    return sums
