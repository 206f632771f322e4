"""`CachedContext`: the rows of several sequences in a pass, over a cache that has room for them.

Native kernels ask it for `spans`; PyTorch computes the rows of each segment as `rows.py` says.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from outdraft.core.cache import KVCache
from outdraft.kernels.decoder.rows import Span
from outdraft.nn.fold import Step, fold_cached
from outdraft.nn.linear import RowRange
from outdraft.nn.rows import RowsOverCache
from outdraft.nn.segment import Segment


class CachedContext:
    """Rows over a cache with room reserved for them. `exact`: each row gets the bits of decoding it alone.

    Segments lie one after another in the pass. Plans and masks are made at the first layer and used by all.
    """

    def __init__(self, cache: KVCache, segments: Sequence[Segment], exact: bool = True) -> None:
        self.cache = cache
        self._segments = segments
        self._exact = exact
        self._planned: list[RowsOverCache] | None = None  # native kernels ask for `spans` and need no plan

    @cached_property
    def bulk(self) -> Sequence[RowRange]:
        """The chunks of prompts that are computed in one piece."""
        return [(one.start, one.start + one.num_bulk) for one in self._segments if one.num_bulk]

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

    def fold(self, layer: int, step: Step, inputs: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
        """Segment by segment from the states that the cache keeps; that after every row of a draft stays there."""
        return fold_cached(self.cache, self._segments, layer, step, inputs)

    def spans(self) -> list[Span]:
        return [
            Span(
                start=one.start,
                stop=one.stop,
                base=one.base,
                first=one.base,
                memory=self.cache.memory(one.seq),
                paths=None if one.is_chain else one.paths(0, one.num_rows),
            )
            for one in self._segments
        ]
