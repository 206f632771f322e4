"""Rows behind a text for a decoder's own layers: a pass keeps the keys and values of the text, others stand behind it.

    text      0 1 2 3 4 5          `KeptContext`: one pass, whose keys and values are kept layer by layer
    behind    2: [3' 4' 5']        `BehindContext`: each sees the rows up to its own, and those of its block before it

Data in: queries, keys and values of one layer; data out: what they see, mixed.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.drafters.shared.blocks.sees import PackedBlocks
from outdraft.nn.packed import PackedContext
from outdraft.options.errors import CapabilityError


class KeptContext(PackedContext):
    """Keeps the keys and values of every layer."""

    def __init__(self, batch: int, length: int, documents: Tensor) -> None:
        super().__init__(batch, length, documents)
        self.keys: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        self.keys[layer] = (k, v)
        return super().attend(layer, q, k, v, window=window, scale=scale, cap=cap)

    @property
    def kept(self) -> list[tuple[Tensor, Tensor]]:
        """Of each layer, [N, Hkv, d] each."""
        return [self.keys[layer] for layer in sorted(self.keys)]


class BehindContext:
    """The attention of blocks behind texts. `groups`: blocks of one size each; `counts`: the rows of each group."""

    def __init__(self, groups: Seq[PackedBlocks], counts: Seq[int]) -> None:
        self._groups, self._counts, self.bulk = groups, list(counts), ((0, sum(counts)),)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d] -> [N, H * d]."""
        if window is not None or cap is not None:
            raise CapabilityError("rows behind a text are not trained where layers have windows or capped scores")
        parts = zip(self._groups, *(torch.split(x, self._counts) for x in (q, k, v)), strict=True)  # type: ignore[no-untyped-call]
        return torch.cat([blocks.attend(layer, *own, scale=scale) for blocks, *own in parts])

    def spans(self) -> None:
        """Rows are asked for layer by layer."""
