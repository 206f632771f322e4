"""A small copy of some of a text's keys and values, over which the whole target drafts.

    text   [ 0 1 2 3 4 5 6 7 8 9 ... 90 91 | 92 93 ]      cached rows of the target, 92 and 93 since the last choice
    view   [ 0 1   84 85 86 87 88 89 90 91 | 92 93 | guess ]   chosen rows, what came since, tentative rows

Keys stay as they were turned, so a row keeps its place in the text wherever it stands in the view. What came since is
copied from the target's cache: the view never holds a guess as text. Data in: which rows of each layer (and head) to
copy; data out: the attention context of a pass over the view.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.cache.copy_rows import copy_rows
from outdraft.core.sequence import Sequence
from outdraft.models.networks.port import TargetPort
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import WatchedContext
from outdraft.nn.segment import chain_segments

Choose = Callable[[int, Tensor], Tensor]  # layer, keys [Hkv, n, d] -> rows to copy: [m], or [Hkv, m] for each head


class SparseViews:
    """One view for each sequence. `cache`: how it is stored; None: as floats."""

    def __init__(self, port: TargetPort, cache: CacheConfig | None = None) -> None:
        self._port = port
        facts = port.facts
        self.rows = (cache or CacheConfig()).build(
            facts.num_layers, facts.num_kv_heads, facts.head_dim, facts.dtype, facts.device, facts.max_len
        )
        self._copied: dict[int, int] = {}  # text rows that the view knows of
        self._chosen_at: dict[int, int] = {}  # text rows when its rows were chosen

    def add(self, seq: Sequence) -> None:
        self.rows.add(seq.id)
        self._copied[seq.id] = self._chosen_at[seq.id] = 0

    def free(self, seq: Sequence) -> None:
        if self._copied.pop(seq.id, None) is not None:
            del self._chosen_at[seq.id]
            self.rows.free(seq.id)

    def is_due(self, seq: Sequence, budget: int, refresh: int) -> bool:
        """Whether rows should be chosen anew: there are more than `budget`, and `refresh` came since the last time."""
        came = seq.num_cached - self._chosen_at[seq.id]
        kept_all = self.rows.length(seq.id) == self._copied[seq.id]
        size = self.rows.length(seq.id) + seq.num_cached - self._copied[seq.id]
        return size > budget and (kept_all or came >= refresh)

    def choose(self, seq: Sequence, choose: Choose) -> None:
        """Hold these rows of the text and no others."""
        self.rows.truncate(seq.id, 0)
        count = 0
        for layer in range(self._port.facts.num_layers):
            k, v = self._port.rows.read(seq, layer)
            chosen = choose(layer, k)
            if chosen.dim() == 1:
                chosen = chosen.expand(k.shape[0], -1)
            where = chosen[:, :, None].expand(-1, -1, k.shape[-1])  # [Hkv, m, d]
            if layer == 0:
                count = chosen.shape[1]
                self.rows.reserve(seq.id, count)
            self.rows.write(seq.id, layer, 0, k.gather(1, where).transpose(0, 1), v.gather(1, where).transpose(0, 1))
        self.rows.commit(seq.id, range(count))
        self._copied[seq.id] = self._chosen_at[seq.id] = seq.num_cached

    def follow(self, seq: Sequence) -> None:
        """Copy what the text has gained: as it is stored, where the view stores rows in the same way."""
        first, count = self._copied[seq.id], seq.num_cached - self._copied[seq.id]
        if count < 1:
            return
        self.rows.reserve(seq.id, count)
        slot = self.rows.length(seq.id)
        ours, theirs = self.rows.memory(seq.id), self._port.rows.memory(seq)
        if ours.keys.dtype == theirs.keys.dtype:
            copy_rows(theirs, range(first, seq.num_cached), ours, slot)
        else:
            for layer in range(self._port.facts.num_layers):
                k, v = self._port.rows.read(seq, layer, first)
                self.rows.write(seq.id, layer, slot, k.transpose(0, 1), v.transpose(0, 1))
        self.rows.commit(seq.id, range(count))
        self._copied[seq.id] = seq.num_cached

    def tentative(self, seqs: Seq[Sequence], offset: int, rooms: Seq[int]) -> CachedContext:
        """One row of each, `offset` places after the pending one, with room for `rooms[i]` rows from it on."""
        return self.extend(seqs, [offset] * len(seqs), [1] * len(seqs), rooms)

    def extend(self, seqs: Seq[Sequence], offsets: Seq[int], counts: Seq[int], rooms: Seq[int]) -> CachedContext:
        """A pass of `counts[i]` guess rows from place `offsets[i]` on, each seeing all before it."""
        for seq, offset, room in zip(seqs, offsets, rooms, strict=True):
            self.rows.reserve(seq.id, offset + room)
        bases = [self.rows.length(seq.id) + offset for seq, offset in zip(seqs, offsets, strict=True)]
        segments = chain_segments([seq.id for seq in seqs], counts, bases)
        return CachedContext(self.rows, segments, exact=self._port.facts.exact)


def last_queries(port: TargetPort, seq: Sequence, count: int) -> dict[int, Tensor]:
    """Queries of the last `count` cached tokens, which one pass asks once more: layer -> [count, H, d], turned."""
    context = WatchedContext(port.rows.again([seq], [count]))
    start = seq.num_cached - count
    ids = torch.tensor(seq.tokens[start : seq.num_cached])
    port.layers.run(ids, torch.tensor([seq.position(i) for i in range(start, seq.num_cached)]), context)
    return context.queries
