"""Rotary tables of a fixed length, for compiled training.

`Rope.at` grows its tables by looking at the largest position, which is a question to the host that a compiler cannot
follow. Here the tables are made once, by that same class, and only indexed.
"""

import torch
from torch import Tensor

from outdraft.drafters.eagle.net import EagleNet
from outdraft.models.base import Decoder
from outdraft.nn.rope import Rope, Rotation


class FixedRope(Rope):
    """Positions 0..length-1 in one type."""

    def __init__(self, rope: Rope, length: int, dtype: torch.dtype) -> None:
        table = rope.at(torch.arange(length), dtype)
        self._cos, self._sin = table.cos, table.sin  # [T, 1, d]

    def at(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        """Rows of the tables."""
        return Rotation(cos=self._cos[positions], sin=self._sin[positions])


def fix_positions(module: Decoder | EagleNet, length: int, dtype: torch.dtype = torch.bfloat16) -> None:
    """Replace a network's rotary tables, in place."""
    if module.rope is not None:
        module.rope = FixedRope(module.rope, length, dtype)
