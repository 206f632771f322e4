"""Make a network fit for compiled training: plain products, and rotary tables that are fixed.

`Rope.at` grows its tables by looking at the largest
position, a question to the host that a compiler cannot follow; here they are made once and only indexed.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import MLP
from outdraft.nn.activation import Bend
from outdraft.nn.rope import Rope, Rotation
from outdraft.training.lessons import make_plain


class FixedRope(Rope):
    """Positions 0..length-1 in one type."""

    def __init__(self, rope: Rope, length: int, dtype: torch.dtype) -> None:
        table = rope.at(torch.arange(length), dtype)
        self._cos, self._sin, self._all = table.cos, table.sin, table.growth  # [T, 1, d], [T, 1, 1]

    def at(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        growth = None if self._all is None else self._all[positions]
        return Rotation(cos=self._cos[positions], sin=self._sin[positions], growth=growth)


class _SiluGate(torch.autograd.Function):
    """silu(gate) * value with a gradient that keeps nothing but its input: half the time of the compiler's own."""

    @staticmethod
    def forward(ctx: Any, up: Tensor) -> Tensor:
        ctx.save_for_backward(up)
        gate, value = (part.float() for part in up.chunk(2, 1))
        return (gate / (1 + (-gate).exp()) * value).to(up.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (up,) = ctx.saved_tensors
        grad = grads[0].float()
        gate, value = (part.float() for part in up.chunk(2, 1))
        share = 1 / (1 + (-gate).exp())
        of_gate = grad * value * share * (1 + gate * (1 - share))
        return torch.cat((of_gate.to(up.dtype), (grad * gate * share).to(up.dtype)), 1)


def _bend(up: Tensor, exact: bool) -> Tensor:
    out: Tensor = _SiluGate.apply(up)  # type: ignore[no-untyped-call]
    return out


def make_compilable(module: Decoder, length: int, dtype: torch.dtype = torch.bfloat16) -> None:
    """In place; positions 0..length-1 are all that it can be asked for afterwards."""
    module.ropes = {kind: FixedRope(rope, length, dtype) for kind, rope in module.ropes.items()}
    make_plain(module)
    for part in module.modules():
        if isinstance(part, MLP) and isinstance(part.bend, Bend) and part.bend.function is F.silu:
            part.bend = _bend
