"""The feed-forward non-linearities, under the names that Hugging Face configurations use.

PyTorch computes them over the flattened rows, in vectors with a scalar tail, split among threads at any place; tail and
vector differ in the last bit. `rowwise` calls the function on pieces for which a row cannot meet another row's tail.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

_gelu_tanh = partial(F.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": F.relu,
}

_SERIAL = 32767  # elements that PyTorch computes without splitting them among threads
_VECTOR = 64  # a multiple of every vector length


def rowwise(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """function(x) with the bits that each row of x [N, W] would get alone."""
    num_rows, width = x.shape
    x = x.contiguous()  # one row always is, and PyTorch has other code for other layouts
    step = max(1, _SERIAL // width) if width % _VECTOR == 0 else 1
    if num_rows <= step or x.device.type != "cpu":
        return function(x)
    return torch.cat([function(piece) for piece in x.split(step)])  # type: ignore[no-untyped-call]


class Bend:
    """What stands between a feed-forward's two products; `gate_size`: width of the gate, None if it has none."""

    def __init__(self, name: str, gate_size: int | None) -> None:
        self.function = ACTIVATIONS[name]
        self.gate_size = gate_size

    def __call__(self, up: Tensor, exact: bool) -> Tensor:
        """[N, inner], or [N, gate | value] -> [N, inner]; `exact`: each row's bits as if it were alone."""
        gate, value = (up, None) if self.gate_size is None else up.split(self.gate_size, 1)  # type: ignore[no-untyped-call]
        bent = rowwise(self.function, gate) if exact else self.function(gate)
        return bent if value is None else bent * value
