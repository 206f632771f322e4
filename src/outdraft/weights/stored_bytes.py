"""Matrices that a draft's file holds as bytes: half the size of bfloat16, for drafts that travel with a package.

    NAME               int8 [out, in]
    NAME.byte_scales   float16 [out, in / 32]       NAME = integers * scale of the group, symmetric around 0

A reader sees one tensor NAME in bfloat16, so that every kind of draft can be stored so, trained on, and converted. Only
a guess is made of it. Kernels that round it again find the same integers, but for one in some hundred, which is off by
one (docs/quantization.md).
"""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown

GROUP = 32
SCALES = ".byte_scales"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHeader:
    """What a file says of one tensor."""

    path: Path
    shape: tuple[int, ...]
    dtype: str  # as safetensors spells it


def check_scales(scales: TensorHeader, of: TensorHeader | None, name: str) -> None:
    """Raise `ModelLoadError` unless the tensor `name` holds the scales of a matrix of bytes."""
    size = None if of is None or len(of.shape) != 2 else (of.shape[0], of.shape[1] / GROUP)
    if of is None or of.dtype != "I8" or scales.dtype != "F16" or scales.shape != size:
        raise ModelLoadError(
            f"{scales.path}: {shown(name)} must hold the scales, float16 [out, in / {GROUP}], of the matrix of bytes "
            f"{shown(name.removesuffix(SCALES))}: download it again"
        )


def times_scales(integers: Tensor, scales: Tensor) -> Tensor:
    """[out, in] and [out, groups] -> bfloat16 [out, in]."""
    groups = integers.view(*scales.shape, GROUP).float() * scales.float()[:, :, None]
    return groups.flatten(1).bfloat16()
