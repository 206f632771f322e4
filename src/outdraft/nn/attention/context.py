"""The attention context over a paged pool: static tensors in, static tensors out, no wait for the host."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from outdraft.core.cache import PAGE
from outdraft.nn.attention import reference
from outdraft.nn.attention.rows import PagedRows
from outdraft.nn.linear import RowRange


class PagedAttention(Protocol):
    """Attention of one layer: `reference.paged_attention` says what it computes."""

    def __call__(
        self, q: Tensor, keys: Tensor, values: Tensor, rows: PagedRows, *, window: int | None, scale: float,
        cap: float | None = None,
    ) -> Tensor:  # fmt: skip
        """q [R, H, d], keys and values [pages, Hkv, 16, d] -> [R, H * d]."""
        ...


def best_attention(device: torch.device, dtype: torch.dtype, width: int) -> PagedAttention:
    """The Triton kernel on a GPU that has Triton, for a format and a head width that it takes; else the reference."""
    if device.type == "cuda" and dtype != torch.float64 and find_spec("triton") is not None:
        from outdraft.nn.attention.triton_kernel import paged_attention, tile_slots

        if tile_slots(width, dtype):
            return paged_attention
    return reference.paged_attention


class PagedContext:
    """`AttentionContext` of one pass. keys and values: the pool [L, pages, Hkv, 16, d], which takes the new rows."""

    def __init__(
        self, keys: Tensor, values: Tensor, rows: PagedRows, attention: PagedAttention, bulk: Sequence[RowRange] = ()
    ) -> None:
        self.bulk = bulk
        self._keys, self._values = keys, values
        self._rows = rows
        self._attention = attention
        self._page, self._place = rows.slots // PAGE, rows.slots % PAGE

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [R, H, d], k and v [R, Hkv, d] -> [R, H * d]."""
        keys, values = self._keys[layer], self._values[layer]
        keys[self._page, :, self._place] = k
        values[self._page, :, self._place] = v
        return self._attention(q, keys, values, self._rows, window=window, scale=scale, cap=cap)

    def spans(self) -> None:
        """The native kernels are a CPU's."""
