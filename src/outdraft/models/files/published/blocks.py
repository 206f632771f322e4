"""Weights of other programs as the bytes of GGUF's blocks (`nn/quant/blocks.py`): bits that move, and nothing else.

    Q4_0, Q5_0, Q8_0   a float16 scale and 32 integers, from -8, -16 and -128 on
    MXFP4              a power of two in a byte and 32 floats of 4 bits
    NVFP4              four factors of 8 bits and 64 floats of 4 bits, 16 for each

A byte of a block holds two numbers half a group apart, where these files' bytes hold neighbours.
"""

import torch
from torch import Tensor

from outdraft.nn.quant.blocks import BLOCKS

_LEAST = {"Q4_0": -8, "Q5_0": -16}  # what the code 0 stands for


def integer_blocks(integers: Tensor, scales: Tensor, kind: str) -> Tensor:
    """int8 [out, in] and scales [out, in / 32], which float16 holds -> uint8 [out, bytes of a row]."""
    groups = integers.view(len(integers), -1, 32)
    scale = scales.half().unsqueeze(2).contiguous().view(torch.uint8)  # [out, in / 32, 2]
    if kind == "Q8_0":
        return torch.cat((scale, groups.view(torch.uint8)), 2).flatten(1)
    codes = (groups - _LEAST[kind]).view(torch.uint8)
    parts = [scale, _paired(codes & 15)]
    if kind == "Q5_0":
        places = torch.arange(8, dtype=torch.uint8)
        parts.insert(1, ((codes >> 4).view(*codes.shape[:2], 4, 8) << places).sum(3, dtype=torch.uint8))
    return torch.cat(parts, 2).flatten(1)


def float_blocks(packed: Tensor, scales: Tensor, kind: str) -> Tensor:
    """uint8 [out, in / 2], neighbours in a byte, and uint8 [out, groups] -> uint8 [out, bytes of a row]."""
    num_out, num_groups = scales.shape
    codes = torch.stack((packed & 15, packed >> 4), 2).view(num_out, num_groups, -1)
    together = BLOCKS[kind].weights // codes.shape[2]  # groups of a block
    parts = scales.view(num_out, -1, together), _paired(codes).view(num_out, num_groups // together, -1)
    return torch.cat(parts, 2).flatten(1)


def _paired(codes: Tensor) -> Tensor:
    """The first half of a group in the low halves of bytes, the second in the high ones: [..., n] -> [..., n / 2]."""
    low, high = codes.chunk(2, -1)
    return low | high << 4
