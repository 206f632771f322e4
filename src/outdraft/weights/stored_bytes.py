"""Matrices that a draft's file holds as bytes: half the size of bfloat16, for drafts that travel with a package.

    NAME               int8 [out, in]
    NAME.byte_scales   float16 [out, in / 32]       NAME = integers * scale of the group, symmetric around 0

A reader sees one tensor NAME in bfloat16, so that every kind of draft can be stored so, trained on, and converted. Only
a guess is made of it, and the kernels round it to the same integers again (docs/quantization.md).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

GROUP = 32
SCALES = ".byte_scales"
_MOST = 127
_FEWEST = 1 << 16  # numbers of a matrix that is worth rounding


def rounded_matrices(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a file holds of these tensors: bytes and scales of each large matrix, and the others as they are."""
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and tensor.is_floating_point() and tensor.numel() >= _FEWEST and not tensor.size(1) % GROUP:
            groups = tensor.float().unflatten(1, (-1, GROUP))
            scales = (groups.abs().amax(2) / _MOST).half()
            whole = groups / torch.where(scales == 0, 1.0, scales.float())[:, :, None]
            made[name] = whole.round().clamp(-_MOST, _MOST).to(torch.int8).flatten(1)
            made[name + SCALES] = scales
        else:
            made[name] = tensor
    return made


def times_scales(integers: Tensor, scales: Tensor) -> Tensor:
    """[out, in] and [out, groups] -> bfloat16 [out, in]."""
    groups = integers.float().unflatten(1, (-1, GROUP)) * scales.float()[:, :, None]
    return groups.flatten(1).bfloat16()
