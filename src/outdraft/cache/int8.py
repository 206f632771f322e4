"""Rows of keys and values as bytes: each row has a scale of its own, so its bytes depend on that row alone."""

import torch
from torch import Tensor


def to_bytes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """[..., d] -> int8 [..., d] and its scales, float32 [...]; a row of zeros has scale 0."""
    rows = rows.float()
    scales = rows.abs().amax(-1) / 127
    inverse = torch.where(scales == 0, 0.0, 1 / scales)
    return (rows * inverse[..., None]).round_().clamp_(-127, 127).to(torch.int8), scales


def to_floats(integers: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """What the bytes stand for: [..., d] in `dtype`."""
    return (integers.float() * scales[..., None]).to(dtype)
