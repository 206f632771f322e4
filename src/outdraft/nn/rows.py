"""The attention of one segment's rows over a cache, by PyTorch, in three ways that mix:

    bulk    a prompt chunk: one causal or masked attention, always over the same rows
    exact   row by row: the row's path is put in the slots where plain decoding would have it, then one query looks
            at one contiguous block; so its bits are those of plain decoding, whatever the tree around it
    masked  all remaining rows in one masked attention (probes, or everything when exactness is not asked for)

In the end the cache holds all rows in row order from `base` on, for `commit` to pick from.
"""

import torch
from torch import Tensor

from outdraft.core.cache import KVCache
from outdraft.nn.scores import attention
from outdraft.nn.segment import Segment

_Write = tuple[int, int]  # (slot, row), both counted from the segment's base


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
        self,
        cache: KVCache,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        window: int | None,
        scale: float,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
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
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        window: int | None,
        scale: float,
        cap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:
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
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        first: int,
        window: int | None,
        scale: float,
        cap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:
        """Rows first.. in one attention: q [m, H, d] -> [m, H * d]."""
        count = q.shape[0]
        stop = self.base + first + count
        key = (first, count, window)
        if key not in self._masks:
            self._masks[key] = self._mask(first, count, window, q)
        mask = self._masks[key]
        out = attention(
            q.transpose(0, 1)[None],
            keys[None, :, :stop],
            values[None, :, :stop],
            mask=mask,
            scale=scale,
            cap=cap,
            is_causal=mask is None and count > 1,
            sinks=None if sinks is None else sinks[:, None],
        )
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
