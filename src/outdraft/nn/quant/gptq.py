"""Integers that keep a layer's outputs, instead of its weights: each column's rounding error is made up for by the
columns after it, as far as the layer's inputs go together.

Frantar, Ashkboos, Hoefler and Alistarh, "GPTQ: accurate post-training quantization for generative pre-trained
transformers", 2022, https://arxiv.org/abs/2210.17323. Columns in their own order, so that groups stay contiguous.
Data in: a weight [out, in] and the sum of x x^T over calibration rows; data out: integers and scales of the same grid.
"""

import torch
from torch import Tensor

from outdraft.kernels.decoder import grid

_BLOCK = 128  # columns between two updates of everything to their right, where all inputs share a scale
_DAMPING = 0.01  # of the mean diagonal: what inputs that were never seen weigh


@torch.no_grad()
def choose_integers(weight: Tensor, gram: Tensor, bits: int, group_size: int) -> tuple[Tensor, Tensor]:
    """weight [out, in], gram [in, in] -> integers int8 [out, in], scales float32 [out, groups]."""
    left = weight.double()  # what is still to be represented
    passing = _passing_on(gram.double())
    num_in = weight.shape[1]
    step = group_size or _BLOCK
    integers = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)
    scales = [] if group_size else [grid.find_scales(weight, bits, 0)]
    for start in range(0, num_in, step):
        stop = min(start + step, num_in)
        if group_size:
            scales.append(grid.find_scales(left[:, start:stop], bits, group_size))
        errors = torch.empty_like(left[:, start:stop])
        for i in range(start, stop):
            column = left[:, i : i + 1]
            integers[:, i : i + 1] = grid.round_to_grid(column, scales[-1], bits, 0)
            error = (column - integers[:, i : i + 1] * scales[-1]) / passing[i, i]  # [out, 1]
            left[:, i + 1 : stop] -= error * passing[i, i + 1 : stop]
            errors[:, i - start] = error[:, 0]
        left[:, stop:] -= errors @ passing[start:stop, stop:]
    return integers, torch.cat(scales, 1)


def _passing_on(gram: Tensor) -> Tensor:
    """The upper Cholesky factor of gram^-1: row i says how column i's error moves to the columns after it."""
    diagonal = gram.diagonal()
    gram = gram + torch.eye(len(gram), dtype=gram.dtype, device=gram.device) * (_DAMPING * diagonal.mean() + 1e-12)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    upper: Tensor = torch.linalg.cholesky(inverse, upper=True)
    return upper
