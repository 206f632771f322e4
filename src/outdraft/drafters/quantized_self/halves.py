"""A text's keys and values as a rounded draft sees them: the upper four bits of older rows, recent rows whole.

    byte of a channel    [ upper half | lower half ]      row = bytes x scale, as in a cache of bytes
    view                 [ upper halves ........ | buffer to 2 buffer - 1 recent rows, whole | guess ]

Where the target's own cache holds bytes these are the same bytes: the target verifies with both halves, the draft reads
one. A group of `buffer` rows loses its lower halves when as many newer rows stand behind it, so the tokens that matter
most are never the rounded ones. After Tiwari et al., "QuantSpec", 2025, https://arxiv.org/abs/2502.10424. Data in:
sequences; data out: the attention context of a pass over the view.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.core.cache import PAGE
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.own_layers.sparse_view import SparseViews
from outdraft.models.networks.port import TargetPort
from outdraft.nn.cached import CachedContext


def upper_half(rows: Tensor) -> Tensor:
    """Bytes with the middle of what their lower halves could be in their place: int8 -> int8, at most 8 away."""
    return torch.bitwise_and(rows, -16) | 8


class UpperHalves:
    """One view for each sequence. `num_rounded`: rows that have lost their lower halves so far, of all sequences."""

    def __init__(self, port: TargetPort, buffer: int) -> None:
        self.views = SparseViews(port, CacheConfig(dtype="int8"))
        self.num_rounded = 0
        self._buffer = buffer  # a multiple of PAGE
        self._rounded: dict[int, int] = {}  # sequence -> its rows without a lower half

    def add(self, seq: Sequence) -> None:
        self.views.add(seq)
        self._rounded[seq.id] = 0

    def free(self, seq: Sequence) -> None:
        self.views.free(seq)
        self._rounded.pop(seq.id, None)

    def follow(self, seq: Sequence) -> None:
        """Take in what the text has gained, and round what has become old."""
        self.views.follow(seq)
        first = self._rounded[seq.id]
        groups = (seq.num_cached - first) // self._buffer - 1
        if groups < 1:
            return
        last = first + groups * self._buffer
        memory = self.views.rows.memory(seq.id)
        pages = memory.table[first // PAGE : last // PAGE].long()
        for plane in (memory.keys, memory.values):
            plane[:, pages] = upper_half(plane[:, pages])
        self._rounded[seq.id] = last
        self.num_rounded += last - first

    def tentative(self, seqs: Seq[Sequence], offset: int, rooms: Seq[int]) -> CachedContext:
        """One row of each, `offset` positions after the pending one, with room for `rooms[i]` rows from it on."""
        return self.views.tentative(seqs, offset, rooms)
