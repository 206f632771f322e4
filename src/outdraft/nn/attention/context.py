"""Attention over a paged pool: static tensors in, static tensors out, no wait for the host.

    scores = q k^T * scale over the slots that a row sees; softmax in float32 (float64 stays); times v

`paged_attention` is that in plain PyTorch, on any device and in any number format: every row gets a copy of its
sequence's pages first, which is right, and slow. `best_attention` takes the Triton kernel where it can.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from outdraft.core.cache import PAGE
from outdraft.nn.attention.rows import PagedRows
from outdraft.nn.linear import RowRange
from outdraft.nn.scores import capped

_ROWS = 16  # at once, for the sake of memory


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: PagedRows,
    *,
    window: int | None,
    scale: float,
    cap: float | None = None,
) -> Tensor:
    """q [R, H, d], keys and values of one layer [pages, Hkv, 16, d] -> [R, H * d]; padding rows get 0.

    window: a row sees so many positions, its own included. cap: bounds the scores softly.
    """
    heads, kv_heads, width = q.shape[1], keys.shape[1], q.shape[2]
    kind = torch.float64 if q.dtype == torch.float64 else torch.float32
    seen = visible(rows, window)  # [R, T]
    grouped = q.to(kind).view(-1, kv_heads, heads // kv_heads, width)
    outs = []
    for first in range(0, q.shape[0], _ROWS):
        own = slice(first, first + _ROWS)
        see = seen[own]
        tables = rows.tables[rows.owners[own].clamp(min=0)]  # [r, P]
        k, v = (pool[tables].transpose(1, 2).flatten(2, 3).to(kind) for pool in (keys, values))  # [r, Hkv, T, d]
        scores = torch.einsum("rhgd,rhtd->rhgt", grouped[own], k) * scale
        scores = scores if cap is None else capped(scores, cap)
        weights = torch.softmax(scores.masked_fill(~see[:, None, None, :], -torch.inf), -1)
        weights = weights.masked_fill(~see.any(-1)[:, None, None, None], 0)
        # A slot that was never written may hold NaN, which a weight of 0 does not silence.
        outs.append(torch.einsum("rhgt,rhtd->rhgd", weights, v.masked_fill(~see[:, None, :, None], 0)))
    return torch.cat(outs).flatten(1).to(q.dtype)


def visible(rows: PagedRows, window: int | None) -> Tensor:
    """Which slots each row sees: [R, T] bool over the T slots of its sequence's table."""
    num_rows, words = rows.sees.shape
    owners = rows.owners.clamp(min=0)
    slot = torch.arange(rows.tables.shape[1] * PAGE, device=rows.tables.device)
    new = slot - rows.bases[owners][:, None]  # [R, T] which new row of the sequence stands there
    bit = rows.sees.gather(1, (new >> 6).clamp(0, words - 1)) >> (new & 63) & 1
    seen = (new < 0) | ((bit == 1) & (new < rows.counts[owners][:, None]))
    if window is not None:
        row = (rows.starts[owners][:, None] + new).clamp(0, num_rows - 1)
        place = torch.where(new < 0, slot, rows.positions[row])
        seen = seen & (rows.positions[:, None] - place < window)
    return seen & (rows.owners >= 0)[:, None]


class PagedAttention(Protocol):
    """Attention of one layer: `paged_attention` says what it computes."""

    def __call__(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        rows: PagedRows,
        *,
        window: int | None,
        scale: float,
        cap: float | None = None,
    ) -> Tensor:
        """q [R, H, d], keys and values [pages, Hkv, 16, d] -> [R, H * d]."""


def best_attention(device: torch.device, dtype: torch.dtype, width: int) -> PagedAttention:
    """The Triton kernel on a GPU that has Triton, for a format and a head width that it takes; else the reference."""
    if device.type == "cuda" and dtype != torch.float64 and find_spec("triton") is not None:
        from outdraft.nn.attention import triton_kernel

        if triton_kernel.tile_slots(width, dtype):
            return triton_kernel.paged_attention
    return paged_attention


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
