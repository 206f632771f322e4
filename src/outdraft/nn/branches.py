"""Attention of tree rows that were not all fed in one pass: each level of a drafted tree is a pass of its own.

    cache   [ text | level 1 | level 2 ]  new rows: level 3      a row sees the text, its ancestors' rows and itself,
                                                                 which do not stand next to each other

One masked attention for each sequence: its numbers depend on that sequence's rows alone, whatever else is in the batch.
Data in: queries, keys and values of the new rows; data out: what they see, mixed.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.cache import KVCache
from outdraft.kernels.decoder.rows import Span
from outdraft.nn.linear import RowRange
from outdraft.nn.scores import attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """New tree rows of one sequence."""

    seq: int
    start: int  # first row in the pass
    text: int  # rows that every new row sees
    first: int  # slot of the first new row; guess row r stands in slot text + r
    above: list[list[int]]  # guess rows that each new row sees, topmost first

    def mask(self, window: int | None, like: Tensor) -> Tensor:
        """What to add to the scores: [n, first + n]."""
        n = len(self.above)
        hidden = torch.ones(n, self.first + n, dtype=torch.bool)
        for i, rows in enumerate(self.above):
            place = self.text + len(rows)  # the row's own position
            oldest = 0 if window is None else max(0, place - window + 1)
            hidden[i, oldest : self.text] = False
            hidden[i, [self.text + row for row in rows[max(0, oldest - self.text) :]]] = False
            hidden[i, self.first + i] = False
        return torch.zeros(hidden.shape, dtype=like.dtype).masked_fill_(hidden, -torch.inf).to(like.device)


class BranchContext:
    """The attention context of one level."""

    def __init__(self, cache: KVCache, parts: Seq[Branches]) -> None:
        self.bulk: Seq[RowRange] = ()
        self._cache = cache
        self._parts = parts
        self._masks: dict[tuple[int, int | None], Tensor] = {}

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        window: int | None,
        scale: float,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d] -> [N, H * d]; the new keys and values stay in the cache."""
        pieces = []
        for part in self._parts:
            own = slice(part.start, part.start + len(part.above))
            stop = part.first + len(part.above)
            self._cache.write(part.seq, layer, part.first, k[own], v[own])
            keys, values = self._cache.read(part.seq, layer, stop)
            if (part.seq, window) not in self._masks:
                self._masks[part.seq, window] = part.mask(window, q)
            mask = self._masks[part.seq, window]
            out = attention(
                q[own].transpose(0, 1)[None],
                keys[None],
                values[None],
                mask=mask,
                scale=scale,
                cap=cap,
                sinks=None if sinks is None else sinks[:, None],
            )
            pieces.append(out[0].transpose(0, 1).flatten(1))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def spans(self) -> list[Span]:
        """What the kernels' attention reads: one span for each sequence."""
        return [_span(self._cache, part) for part in self._parts]


def _span(cache: KVCache, part: Branches) -> Span:
    first = part.first - part.text
    return Span(
        start=part.start,
        stop=part.start + len(part.above),
        base=part.text,
        first=part.first,
        memory=cache.memory(part.seq),
        paths=[[*rows, first + i] for i, rows in enumerate(part.above)],
    )
