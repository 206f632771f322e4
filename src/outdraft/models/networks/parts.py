"""The two parts of a layer, as contracts: what mixes the rows of a text, and what each row passes through alone.

    h --+--norm--[ mixer ]--(+)--+--norm--[ feed-forward ]--(+)--      `Block` has the norms and the sums

A *kind* is a part before it is built: plain values in `ModelConfig.mixers` and `.feed_forwards`. Attention and the MLP
are what a layer has without one. A part asks the context of a pass for all that it knows of other rows: `attend` for
keys and values, `nn.fold.fold` for a state. What the native kernels do not know runs through PyTorch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import LinearMap, RowRange
from outdraft.nn.rope import Rotation


class Mixer(Protocol):
    """Where rows of one text meet. In exact mode a row's bits do not depend on the other rows of the pass."""

    def __call__(self, x: Tensor, rotation: Rotation | None, ctx: AttentionContext) -> Tensor:
        """x [N, D], normed -> [N, D]."""


class FeedForward(Protocol):
    """What every row passes through alone."""

    def __call__(self, x: Tensor, bulk: Sequence[RowRange], exact: bool) -> Tensor:
        """x [N, D], normed -> [N, D]. `bulk`: rows of one piece; `exact`: the bits that each other row has alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlace:
    """Where a part is built. `linear(name, num_in, num_out, bias)`: a map of that name, rounded if the model is."""

    index: int  # of the layer
    width: int  # D
    dtype: torch.dtype
    device: torch.device
    linear: Callable[[str, int, int, bool], LinearMap]


class MixerKind(Protocol):
    """A mixer to be built. Equal kinds build equal networks."""

    @property
    def state(self) -> tuple[int, ...] | None:
        """The shape of what it remembers of a text; None: keys and values."""

    def build(self, place: PartPlace) -> nn.Module:
        """The `Mixer` of the layer at this place."""


class FeedForwardKind(Protocol):
    """A feed-forward to be built."""

    def build(self, place: PartPlace) -> nn.Module:
        """The `FeedForward` of the layer at this place."""
