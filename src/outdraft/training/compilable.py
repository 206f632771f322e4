"""Make a network fit for compiled training: undo what inference prepared, and fix the rotary tables.

Inference packs weights into a layout that has no gradient. `Rope.at` grows its tables by looking at the largest
position, a question to the host that a compiler cannot follow; here they are made once and only indexed.
"""

import torch
from torch import Tensor

from outdraft.drafters.eagle.net import EagleNet
from outdraft.models.base import Decoder
from outdraft.nn.linear import Linear
from outdraft.nn.rope import Rope, Rotation


class FixedRope(Rope):
    """Positions 0..length-1 in one type."""

    def __init__(self, rope: Rope, length: int, dtype: torch.dtype) -> None:
        table = rope.at(torch.arange(length), dtype)
        self._cos, self._sin = table.cos, table.sin  # [T, 1, d]

    def at(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        """Rows of the tables."""
        return Rotation(cos=self._cos[positions], sin=self._sin[positions])


def make_compilable(module: Decoder | EagleNet, length: int, dtype: torch.dtype = torch.bfloat16) -> None:
    """In place; positions 0..length-1 are all that it can be asked for afterwards."""
    if module.rope is not None:
        module.rope = FixedRope(module.rope, length, dtype)
    for part in module.modules():
        if isinstance(part, Linear):
            part.unpack()
            part.tile = None
        if isinstance(part, Decoder):
            part.exact = False
