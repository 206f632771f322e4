"""The same attention as a Triton kernel: one pass over the keys for all rows of a tree, no shape that depends on data.

    grid   blocks of rows x key heads x splits of 256 slots; a split beyond the sequence's end returns at once
    tile   (rows of the block * query heads of the key head) x 64 slots, 32 where a head's row is wide, running softmax
           (Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867); then one small kernel adds the splits up,
           in order

Tiles and splits lie at fixed slots, whatever stands above them: a row of a chain sums in the order of decoding it alone
(FlashDecoding's split, Dao et al. 2023, with fixed ends). On a CPU it runs in Triton's interpreter, for tests.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from outdraft.core.cache import PAGE
from outdraft.nn.attention.rows import PagedRows, power_of_two

_SPLIT = 256
_NARROW, _WIDE = 256, 512  # bytes of a head's row: up to here, tiles of 64 and of 32 slots fit into any GPU's 99 KiB
# Sizes of a bucket, and where its integers lie, must not each be a kernel of their own: compiling takes seconds.
_SIZES = ("num_rows", "words", "pages", "window")
_PLACES = ("positions", "sees", "bases", "starts", "counts", "tables", "block_seqs", "block_rows", "owners")


def tile_slots(width: int, dtype: torch.dtype) -> int:
    """Slots of a tile, for heads of this width; 0: no tile would fit into the shared memory of every GPU."""
    row = power_of_two(width) * dtype.itemsize
    return 64 if row <= _NARROW else 32 if row <= _WIDE else 0


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
    """q [R, H, d], keys and values of one layer [pages, Hkv, 16, d] -> [R, H * d]; padding rows get 0."""
    num_rows, heads, width = q.shape
    kv_heads = keys.shape[1]
    assert q.stride(2) == 1 and keys.stride() == values.stride() and keys.stride(3) == 1
    splits = -(-rows.tables.shape[1] * PAGE // _SPLIT)
    partial = torch.empty(splits, num_rows, heads, width, dtype=torch.float32, device=q.device)
    peaks = torch.empty(splits, num_rows, heads, dtype=torch.float32, device=q.device)
    sums = torch.empty_like(peaks)
    out = torch.empty(num_rows, heads * width, dtype=q.dtype, device=q.device)
    groups = power_of_two(heads // kv_heads)
    _score[(rows.block_seqs.shape[0], kv_heads, splits)](
        q,
        keys,
        values,
        partial,
        peaks,
        sums,
        rows.positions,
        rows.sees,
        rows.bases,
        rows.starts,
        rows.counts,
        rows.tables,
        rows.block_seqs,
        rows.block_rows,
        q.stride(0),
        q.stride(1),
        keys.stride(0),
        keys.stride(1),
        keys.stride(2),
        num_rows,
        heads,
        rows.sees.shape[1],
        rows.tables.shape[1],
        window or 0,
        scale,
        cap or 1.0,
        GROUPS=heads // kv_heads,
        PADDED=groups,
        M=max(16, rows.block * groups),
        N=tile_slots(width, keys.dtype),
        D=width,
        D_PADDED=max(16, power_of_two(width)),
        SPLIT=_SPLIT,
        PAGE=PAGE,
        WINDOWED=window is not None,
        CAPPED=cap is not None,
        num_stages=2,
    )
    _add_up[(num_rows, heads)](
        partial,
        peaks,
        sums,
        out,
        rows.owners,
        rows.bases,
        rows.counts,
        num_rows,
        heads,
        D=width,
        D_PADDED=power_of_two(width),
        SPLIT=_SPLIT,
    )
    return out


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=_PLACES)
def _score(
    q,
    keys,
    values,
    partial,
    peaks,
    sums,
    positions,
    sees,
    bases,
    starts,
    counts,
    tables,
    block_seqs,
    block_rows,
    q_row,
    q_head,
    kv_page,
    kv_head,
    kv_slot,
    num_rows,
    num_heads,
    words,
    pages,
    window,
    scale,
    cap,
    GROUPS: tl.constexpr,
    PADDED: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    SPLIT: tl.constexpr,
    PAGE: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    """One block's rows over one split's slots: unnormalised sums, and the softmax's running peak and sum."""
    block = tl.program_id(0)
    kv = tl.program_id(1)
    split = tl.program_id(2)
    seq = tl.load(block_seqs + block)
    if seq < 0:
        return
    base = tl.load(bases + seq)
    start = tl.load(starts + seq)
    count = tl.load(counts + seq)
    begin = split.to(tl.int64) * SPLIT
    end = tl.minimum(base + count, begin + SPLIT)
    if begin >= end:
        return
    entry = tl.arange(0, M)
    local = tl.load(block_rows + block) + entry // PADDED
    group = entry % PADDED
    alive = (local < count) & (group < GROUPS)
    row = start + local
    head = kv * GROUPS + group
    d = tl.arange(0, D_PADDED)
    within = d < D
    own = tl.load(q + (row * q_row + head * q_head)[:, None] + d[None, :], alive[:, None] & within[None, :], other=0.0)
    place = tl.load(positions + row, alive, other=0)
    peak = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    mixed = tl.zeros([M, D_PADDED], tl.float32)
    if WINDOWED:  # no row of the block sees a tile that lies before the window of its first position
        nearest = tl.min(tl.where(alive, place, end), 0) - window + 1
        begin = tl.maximum(begin, nearest // N * N)
    for first in range(begin, end, N):
        slot = first + tl.arange(0, N)
        live = slot < end
        page = tl.load(tables + seq * pages + slot // PAGE, live, other=0)
        at = page * kv_page + kv * kv_head + slot % PAGE * kv_slot
        k = tl.load(keys + at[None, :] + d[:, None], live[None, :] & within[:, None], other=0.0)
        new = slot - base
        fresh = live & (new >= 0)
        word = tl.load(sees + row[:, None] * words + (new // 64)[None, :], alive[:, None] & fresh[None, :], other=0)
        seen = ((word >> (new & 63)[None, :]) & 1) == 1
        seen = alive[:, None] & live[None, :] & ((new < 0)[None, :] | seen)
        if WINDOWED:
            stands = tl.where(new < 0, slot, tl.load(positions + start + new, fresh, other=0))
            seen = seen & (place[:, None] - stands[None, :] < window)
        scores = tl.dot(own, k, input_precision="ieee") * scale
        if CAPPED:
            scores = (2 * tl.sigmoid(2 * scores / cap) - 1) * cap  # cap * tanh(scores / cap)
        scores = tl.where(seen, scores, float("-inf"))
        risen = tl.maximum(peak, tl.max(scores, 1))
        shift = tl.where(risen == float("-inf"), 0.0, risen)
        weights = tl.exp(scores - shift[:, None])
        fade = tl.exp(peak - shift)
        v = tl.load(values + at[:, None] + d[None, :], live[:, None] & within[None, :], other=0.0)
        mixed = mixed * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * fade + tl.sum(weights, 1)
        peak = risen
    to = (split.to(tl.int64) * num_rows + row) * num_heads + head
    tl.store(peaks + to, peak, alive)
    tl.store(sums + to, total, alive)
    tl.store(partial + to[:, None] * D + d[None, :], mixed, alive[:, None] & within[None, :])


@triton.jit(do_not_specialize=("num_rows",), do_not_specialize_on_alignment=_PLACES)
def _add_up(
    partial,
    peaks,
    sums,
    out,
    owners,
    bases,
    counts,
    num_rows,
    num_heads,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """One row's splits, in order; a row that no sequence owns, or that sees nothing, gets 0."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    owner = tl.load(owners + row)
    stop = tl.load(bases + owner, owner >= 0, other=0) + tl.load(counts + owner, owner >= 0, other=0)
    d = tl.arange(0, D_PADDED)
    peak = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    mixed = tl.zeros([D_PADDED], tl.float32)
    for split in range(0, (stop + SPLIT - 1) // SPLIT):
        at = (split * num_rows + row) * num_heads + head
        own = tl.load(peaks + at)
        risen = tl.maximum(peak, own)
        shift = tl.where(risen == float("-inf"), 0.0, risen)
        fade = tl.exp(peak - shift)
        share = tl.exp(own - shift)
        mixed = mixed * fade + tl.load(partial + at * D + d, d < D, other=0.0) * share
        total = total * fade + tl.load(sums + at) * share
        peak = risen
    result = mixed / tl.where(total == 0, 1.0, total)
    tl.store(out + (row * num_heads + head) * D + d, result.to(out.dtype.element_ty), d < D)
