"""What the slots of a block see: committed rows before their anchor, and the slots of their own block.

    text     0 1 2 3 4 | a = 5        keys of rows 0..4, from what the target said of them
    block    [a, mask, mask, mask]    keys of these four rows, all of them, or (causal) those up to the slot

A block's keys and values are in no cache: they are gone with the pass. Data in: queries, keys and values of all slots
of a pass; data out: what they see, mixed. DFlash, Chen et al., 2026, https://arxiv.org/abs/2602.06036.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.cache import KVCache
from outdraft.nn.scores import attention, shares

Sight = Callable[[int], tuple[int | None, bool]]  # layer -> its window of committed rows, whether slots are causal


def inside(size: int, *, causal: bool, device: torch.device) -> Tensor:
    """Which slot sees which: [b, b] bool."""
    whole = torch.ones(size, size, dtype=torch.bool, device=device)
    return whole.tril() if causal else whole


class CachedBlocks:
    """One block for each of several texts, behind the rows that a cache has of it. Each text is computed by itself.

    overlap: so many of the last rows of the cache are the block's first ones, and are read from it.
    """

    def __init__(self, cache: KVCache, seqs: Seq[int], size: int, sight: Sight, *, overlap: int = 0) -> None:
        self._cache, self._seqs, self._size, self._sight, self._overlap = cache, seqs, size, sight, overlap

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        """q [B * b, H, d], k and v [B * b, Hkv, d] -> [B * b, H * d]."""
        (window, is_causal), found = self._sight(layer), []
        for seq, *own in zip(self._seqs, *(x.split(self._size) for x in (q, k, v)), strict=True):  # type: ignore[no-untyped-call]
            length = self._cache.length(seq) - self._overlap
            first = 0 if window is None else max(0, length - window)
            before = [x[:, first:] for x in self._cache.read(seq, layer, length)]  # [Hkv, T, d]
            mine, keys, values = (x.transpose(0, 1) for x in own)
            mask = torch.ones(self._size, length - first, dtype=torch.bool, device=q.device)
            mask = torch.cat((mask, inside(self._size, causal=is_causal, device=q.device)), 1)
            out = attention(
                mine[None],
                torch.cat((before[0], keys), 1)[None],
                torch.cat((before[1], values), 1)[None],
                mask=mask if is_causal else None,
                scale=scale,
                sinks=None if sinks is None else sinks[:, None],
            )
            found.append(out[0].transpose(0, 1).flatten(1))
        return torch.cat(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Rows of one text in a packed row, and the blocks whose anchors are in it."""

    rows: slice  # of the flat contexts
    blocks: slice  # of the blocks, in order
    anchors: Tensor  # [m] indices in the document, rising


class PackedBlocks:
    """Blocks at many places of packed documents, with gradients. `keys`: of each layer, of all contexts [N, Hkv, d]."""

    def __init__(self, keys: Seq[tuple[Tensor, Tensor]], documents: Seq[Document], size: int, sight: Sight) -> None:
        self._keys, self._documents, self._size, self._sight = keys, documents, size, sight

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        """q [n * b, H, d], k and v [n * b, Hkv, d] -> [n * b, H * d]."""
        group, size = q.shape[1] // k.shape[1], self._size
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        far = [x.repeat_interleave(group, 1) for x in self._keys[layer]]
        counts = [size * (one.blocks.stop - one.blocks.start) for one in self._documents]
        parts = zip(self._documents, *(torch.split(x, counts) for x in (q, k, v)), strict=True)  # type: ignore[no-untyped-call]
        column = None if sinks is None else sinks[:, None]
        return torch.cat([self._of(layer, one, own, far, scale, column) for one, *own in parts])

    def _of(
        self, layer: int, one: Document, own: Seq[Tensor], context: Seq[Tensor], scale: float, sinks: Tensor | None
    ) -> Tensor:
        """The slots of one document: queries, keys, values [m * b, H, d], keys and values of all contexts [N, H, d] ->
        [m * b, H * d].
        """
        (q, _, v), size, count = own, self._size, len(one.anchors)
        far_k, far_v = (x[one.rows] for x in context)  # [T, H, d]
        window, is_causal = self._sight(layer)
        anchors = one.anchors.repeat_interleave(size)[:, None]  # [m * b, 1]
        row = torch.arange(len(far_k), device=q.device)[None]
        hidden = row >= anchors if window is None else (row >= anchors) | (row < anchors - window)
        far = torch.matmul(q.transpose(0, 1), far_k.permute(1, 2, 0)).float() * scale  # [H, m * b, T]
        near_q, near_k, near_v = (x.view(count, size, *x.shape[1:]).transpose(1, 2) for x in own)  # [m, H, b, d]
        near = torch.matmul(near_q, near_k.transpose(-1, -2)).float() * scale  # [m, H, b, b]
        if is_causal:
            near = near.masked_fill(~inside(size, causal=True, device=q.device), float("-inf"))
        scores = torch.cat((far.masked_fill(hidden, float("-inf")), near.transpose(0, 1).flatten(1, 2)), -1)
        weights = shares(scores, sinks).to(v.dtype)  # [H, m * b, T + b]
        out = torch.matmul(weights[..., : len(far_k)], far_v.transpose(0, 1))  # [H, m * b, d]
        nearby = weights[..., len(far_k) :].reshape(-1, count, size, size).transpose(0, 1)  # [m, H, b, b]
        return (out + torch.matmul(nearby, near_v).transpose(0, 1).flatten(1, 2)).transpose(0, 1).flatten(1)
