"""The grid: a weight is a small integer times the scale of its group, symmetric around 0.

    weight [out, in]  ~  integers [out, in] * scales [out, in / group]      a group: `group_size` inputs of one output

    8 bits   -127..127, scale = max|w| / 127, one int8 each
    4 bits   -8..7, scale = max|w| / 7, two to a byte: the low half is the even input, each half is the integer + 8

Rounding to the nearest integer errs by at most half a scale. All arithmetic here is float32.
"""

import torch
from torch import Tensor

from outdraft.options.errors import ConfigError

_LIMITS = {8: (-127, 127), 4: (-8, 7)}


def require_groups(name: str, num_in: int, bits: int, group_size: int) -> None:
    """Raise `ConfigError` if a layer with so many inputs does not divide into groups, or bytes."""
    if group_size and num_in % group_size:
        raise ConfigError(
            f"group_size={group_size} does not divide the {num_in} inputs of {name}: choose one that does, or 0 "
            "(one scale a row), or leave this layer unrounded (keep)"
        )
    if bits == 4 and num_in % 2:
        raise ConfigError(
            f"{name} has an odd number of inputs ({num_in}): choose bits=8, or leave this layer unrounded (keep)"
        )


def grouped(weight: Tensor, group_size: int) -> Tensor:
    """[out, in], contiguous -> [out, groups, inputs of a group], a view."""
    return weight.view(weight.shape[0], -1, group_size or weight.shape[1])


def find_scales(weight: Tensor, bits: int, group_size: int) -> Tensor:
    """The scale of each group: [out, in] -> [out, groups]; 0 where a group is 0 throughout.

    A group's scale is a float16 number (the native kernels store it so), rounded up: nothing is cut off. An output's
    keeps all its bits.
    """
    scales = grouped(weight.float().contiguous(), group_size).abs().amax(2) / _LIMITS[bits][1]
    if bits == 8 and not group_size:
        return scales
    halves = scales.half()
    above = (halves.view(torch.int16) + 1).view(torch.float16)  # the next one
    return torch.where(halves.float() < scales, above, halves).float()


def round_to_grid(weight: Tensor, scales: Tensor, bits: int, group_size: int) -> Tensor:
    """The nearest integers: [out, in], int8."""
    low, high = _LIMITS[bits]
    scale = torch.where(scales == 0, 1.0, scales)[:, :, None]
    return (
        (grouped(weight.float().contiguous(), group_size) / scale).round_().clamp_(low, high).to(torch.int8).flatten(1)
    )


def pack(integers: Tensor, bits: int) -> Tensor:
    """As they are stored: int8 [out, in] for 8 bits, uint8 [out, in / 2] for 4."""
    if bits == 8:
        return integers
    halves = (integers + 8).to(torch.uint8)
    return halves[:, 0::2] | (halves[:, 1::2] << 4)


def unpack(stored: Tensor, bits: int) -> Tensor:
    """The integers: int8 [out, in]."""
    if bits == 8:
        return stored
    halves = torch.stack((stored & 15, stored >> 4), 2).flatten(1)
    return halves.to(torch.int8) - 8


def times_scales(integers: Tensor, scales: Tensor) -> Tensor:
    """The weights that the integers stand for: float32 [out, in]."""
    groups = integers.view(*scales.shape, -1).float()
    made: Tensor = groups * scales[:, :, None]
    return made.flatten(1)
