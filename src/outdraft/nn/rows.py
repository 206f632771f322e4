"""The rows of several sequences in a pass, each a chain or a tree over what a cache holds, and their attention.

    cache   [ 0 1 2 ... base-1 ]                     parents (-1, 0, 0, 2)      depth 0 1 1 2
    rows                        a --+-- b
                                    +-- c -- d       d sees 0..base-1, a, c, d

A `Segment` is one sequence's rows; `CachedContext` is the pass. Native kernels ask it for `spans`; else the rows of a
segment are computed in three ways that mix:

    bulk    a prompt chunk: one causal or masked attention, always over the same rows
    exact   row by row: the row's path is put in the slots where plain decoding would have it, then one query looks
            at one contiguous block; so its bits are those of plain decoding, whatever the tree around it
    masked  all remaining rows in one masked attention (probes, or everything when exactness is not asked for)

In the end the cache holds all rows in row order from `base` on, for `commit` to pick from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from outdraft.core.cache import KVCache
from outdraft.kernels.decoder.rows import Span
from outdraft.nn.linear import RowRange
from outdraft.nn.scores import attention

BULK = 64  # a segment longer than this is a prompt chunk, computed in one piece
_Write = tuple[int, int]  # (slot, row), both counted from the segment's base


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rows [start, stop) of the flat pass belong to cache sequence `seq`, and see its first `base` rows."""

    seq: int
    start: int
    stop: int
    base: int  # contiguous cache rows below; more than the committed ones when a drafter stacks passes
    parents: tuple[int, ...] | None = None  # among the segment's rows, -1: sees only the base; None: a chain
    mask: Tensor | None = None  # [n, n] bool, which row sees which; instead of the ancestors
    exact_rows: int | None = None  # the first so many rows must be row-exact, probes after that need not; None: all
    bulk: int | None = None  # the first so many rows are a prompt chunk, exact as a whole; None: all if over 64

    @property
    def num_rows(self) -> int:
        return self.stop - self.start

    @property
    def num_bulk(self) -> int:
        """How many first rows are computed in one piece: 0, or more than 64."""
        wanted = self.num_rows if self.bulk is None else self.bulk
        return wanted if wanted > BULK else 0

    @property
    def is_chain(self) -> bool:
        """Every row sees all rows before it."""
        return self.parents is None and self.mask is None

    def depths(self) -> list[int]:
        """Rows between each row and the base."""
        if self.parents is None:
            return list(range(self.num_rows))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return depths

    def paths(self, first: int, stop: int) -> list[tuple[int, ...]]:
        """The rows that each of the rows first..stop sees, itself last."""
        if self.mask is not None:
            return [tuple(torch.nonzero(self.mask[i])[:, 0].tolist()) for i in range(first, stop)]
        if self.parents is None:
            return [tuple(range(i + 1)) for i in range(first, stop)]
        paths: list[tuple[int, ...]] = []
        for i, parent in enumerate(self.parents[:stop]):
            paths.append((*paths[parent], i) if parent >= 0 else (i,))
        return paths[first:]

    def visible(self) -> Tensor:
        """Which row sees which: [n, n] bool, on the host."""
        n = self.num_rows
        if self.mask is not None:
            return self.mask.cpu()
        if self.parents is None:
            return torch.ones(n, n, dtype=torch.bool).tril()
        seen = torch.eye(n, dtype=torch.bool)
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                seen[i] |= seen[parent]
        return seen


def chain_segments(seqs: Sequence[int], counts: Sequence[int], bases: Sequence[int]) -> list[Segment]:
    """`counts[i]` rows of cache sequence `seqs[i]` behind its first `bases[i]`, sequence after sequence in the pass."""
    return [
        Segment(seq=seq, start=stop - count, stop=stop, base=base)
        for seq, count, stop, base in zip(seqs, counts, accumulate(counts), bases, strict=True)
    ]


class RowsOverCache:
    """The plan of one segment, made once a pass."""

    def __init__(self, segment: Segment, exact: bool) -> None:
        n = segment.num_rows
        wanted = n if segment.exact_rows is None else min(segment.exact_rows, n)
        self.segment = segment
        self.seq, self.start, self.stop, self.base = segment.seq, segment.start, segment.stop, segment.base
        self.num_bulk = min(segment.num_bulk, n)
        self.exact_stop = max(wanted, self.num_bulk) if exact else self.num_bulk
        self._masks: dict[tuple[int, int, int | None], Tensor | None] = {}
        self._steps: list[tuple[int, int, list[_Write]]] = []  # (row, rows it sees, writes before it looks)
        self._restore: list[_Write] = []
        self._moves = False  # rows change places on the way
        if self.exact_stop > self.num_bulk:
            self._plan_exact()

    def _plan_exact(self) -> None:
        """Order the exact rows depth first, so that common beginnings of paths are written once."""
        paths = self.segment.paths(self.num_bulk, self.exact_stop)
        holds = list(range(self.segment.num_rows))  # slot -> row
        rows = range(self.num_bulk, self.exact_stop)
        for path, looker in sorted(zip(paths, rows, strict=True)):
            writes = [(slot, row) for slot, row in enumerate(path) if holds[slot] != row]
            for slot, row in writes:
                holds[slot] = row
                self._moves = True
            self._steps.append((looker, len(path), writes))
        self._restore = [(slot, slot) for slot, row in enumerate(holds) if slot != row]

    def attend(
        self, cache: KVCache, layer: int, q: Tensor, k: Tensor, v: Tensor, window: int | None, scale: float,
        cap: float | None = None, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """q [n, H, d], k and v [n, Hkv, d] -> [n, H * d]. The rows go into the cache, and are seen as it keeps them."""
        n = q.shape[0]
        cache.write(self.seq, layer, self.base, k, v)
        keys, values = cache.read(self.seq, layer, self.base + n)  # [Hkv, base + n, d]
        pieces = []
        if self.num_bulk:
            pieces.append(self._masked(q[: self.num_bulk], keys, values, 0, window, scale, cap, sinks))
        if self._steps:
            pieces.append(self._exact(q, keys, values, window, scale, cap, sinks))
        if self.exact_stop < n:
            pieces.append(self._masked(q[self.exact_stop :], keys, values, self.exact_stop, window, scale, cap, sinks))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _exact(
        self, q: Tensor, keys: Tensor, values: Tensor, window: int | None, scale: float, cap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """The exact rows one by one: -> [exact, H * d]."""
        k, v = keys[:, self.base :], values[:, self.base :]  # [Hkv, n, d]
        if self._moves:
            k, v = k.clone(), v.clone()
        kv_heads, width = keys.shape[0], q.shape[-1]
        groups = q.reshape(q.shape[0], 1, kv_heads, -1, width)  # [n, 1, Hkv, H / Hkv, d]
        outs: list[Tensor] = [q] * len(self._steps)
        grouped = None if sinks is None else sinks.view(kv_heads, -1)  # [Hkv, H / Hkv]
        for row, seen, writes in self._steps:
            for slot, source in writes:
                keys[:, self.base + slot] = k[:, source]
                values[:, self.base + slot] = v[:, source]
            stop = self.base + seen
            first = 0 if window is None else max(0, stop - window)
            out = attention(
                groups[row], keys[None, :, first:stop], values[None, :, first:stop], scale=scale, cap=cap, sinks=grouped
            )
            outs[row - self.num_bulk] = out.reshape(1, -1)
        for slot, source in self._restore:
            keys[:, self.base + slot] = k[:, source]
            values[:, self.base + slot] = v[:, source]
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    def _masked(
        self, q: Tensor, keys: Tensor, values: Tensor, first: int, window: int | None, scale: float, cap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Rows first.. in one attention: q [m, H, d] -> [m, H * d]."""
        count = q.shape[0]
        stop = self.base + first + count
        key = (first, count, window)
        if key not in self._masks:
            self._masks[key] = self._mask(first, count, window, q)
        mask = self._masks[key]
        out = attention(
            q.transpose(0, 1)[None], keys[None, :, :stop], values[None, :, :stop], mask=mask, scale=scale, cap=cap,
            is_causal=mask is None and count > 1, sinks=None if sinks is None else sinks[:, None],
        )  # fmt: skip
        return out[0].transpose(0, 1).flatten(1)

    def _mask(self, first: int, count: int, window: int | None, q: Tensor) -> Tensor | None:
        """What to add to the scores, [count, base + first + count]; None: all of it, or plainly causal."""
        segment, base = self.segment, self.base
        stop = first + count
        narrow = window is not None and window < base + stop
        if segment.is_chain and not narrow and (count == 1 or base + first == 0):
            return None
        local = segment.visible()[first:stop, :stop]  # [count, first + count]
        seen = torch.cat((torch.ones(count, base, dtype=torch.bool), local), 1)
        if narrow:
            assert window is not None
            depths = torch.tensor(segment.depths())[:stop] + base
            place = torch.cat((torch.arange(base), depths))  # [base + stop] position of each key
            seen &= depths[first:, None] - place[None, :] < window
        zero = torch.zeros(seen.shape, dtype=q.dtype)
        return zero.masked_fill(~seen, float("-inf")).to(q.device)


class CachedContext:
    """Rows over a cache with room reserved for them. `exact`: each row gets the bits of decoding it alone.

    Segments lie one after another in the pass. Plans and masks are made at the first layer and used by all.
    """

    def __init__(self, cache: KVCache, segments: Sequence[Segment], exact: bool = True) -> None:
        self.cache = cache
        self._segments = segments
        self._exact = exact
        self._planned: list[RowsOverCache] | None = None  # native kernels ask for `spans` and need no plan
        self.bulk: Sequence[RowRange] = [
            (segment.start, segment.start + segment.num_bulk) for segment in segments if segment.num_bulk
        ]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float,
        cap: float | None = None, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Segment by segment over the cache; the new keys and values stay there."""
        if self._planned is None:
            self._planned = [RowsOverCache(segment, self._exact) for segment in self._segments]
        parts = self._planned
        if len(parts) == 1:
            return parts[0].attend(self.cache, layer, q, k, v, window, scale, cap, sinks)
        pieces = []
        for part in parts:
            own = slice(part.start, part.stop)
            pieces.append(part.attend(self.cache, layer, q[own], k[own], v[own], window, scale, cap, sinks))
        return torch.cat(pieces)

    def spans(self) -> list[Span]:
        return [_span(self.cache, segment) for segment in self._segments]


def _span(cache: KVCache, segment: Segment) -> Span:
    return Span(
        start=segment.start, stop=segment.stop, base=segment.base, first=segment.base, memory=cache.memory(segment.seq),
        paths=None if segment.is_chain else segment.paths(0, segment.num_rows),
    )  # fmt: skip
