"""A decoder's passes over static memory and a paged pool: recorded once for each bucket of sizes, then replayed.

    score   the rows of a verify pass          -> logits of all rows, taps
    chain   a draft model's whole greedy guess -> its tokens, k passes in one recording, argmax and embedding included
    hidden  any other pass (prompt chunks)     -> hidden states; the same attention, not recorded

The host fills integers (`nn/attention/rows.py`) and asks for nothing back. Data in: rows of sequences and their pages.
"""

from collections.abc import Collection, Hashable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.cache.paged import PagedCache
from outdraft.core.cache import PAGE
from outdraft.core.target import Recorder
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.fitted import FittedNetwork, unfitted
from outdraft.models.networks.network import RunOutput
from outdraft.nn.attention.chain import ChainBuffers, ChainRows
from outdraft.nn.attention.context import PagedContext, best_attention
from outdraft.nn.attention.rows import Bucket, NewRows, PagedRows, RowBuffers, block_rows, find_bucket
from outdraft.nn.capture import Recordings
from outdraft.nn.linear import RowRange

_DUSTBIN = -1  # the sequence that owns the page where padding rows write


class StaticDecoder:
    """Recorded passes of one decoder over one pool of cache slots."""

    def __init__(
        self, decoder: Decoder | FittedNetwork, pool: PagedCache, record: Recorder, *, least_rows: int = 1
    ) -> None:
        """decoder: one, or one that was fitted to another vocabulary."""
        self.decoder = decoder
        whole = unfitted(decoder)
        assert isinstance(whole, Decoder)
        self._least_rows = least_rows
        self.recordings = Recordings(record)
        self._pool = pool
        self._groups = decoder.config.num_heads // decoder.config.num_kv_heads
        self._max_pages = -(-pool.max_len // PAGE)
        self._attention = best_attention(decoder.device, decoder.dtype, decoder.config.head_dim)
        self._buffers: dict[Hashable, RowBuffers] = {}
        self._chains: dict[Hashable, ChainBuffers] = {}
        pool.add(_DUSTBIN)
        pool.reserve(_DUSTBIN, 1)
        self._dustbin = pool.pages(_DUSTBIN)[0]
        self._place = pool.pool()[0].data_ptr()
        for rope in whole.ropes.values():
            first = decoder.config.first_position(pool.max_len)
            rope.complete(first + pool.max_len, decoder.dtype, decoder.device)

    def score(
        self, parts: Seq[NewRows], *, ids: Tensor | None = None, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """One recorded pass: logits [R of the bucket, V] and taps [R, D], valid until the bucket's next pass.

        ids [rows]: tokens that are on the device already, in place of those in `parts`.
        """
        self._follow_pool()
        bucket = self._bucket(parts)
        if bucket not in self._buffers:
            self._buffers[bucket] = RowBuffers(bucket, self._dustbin, self.decoder.device)
        buffers = self._buffers[bucket]
        buffers.fill(parts, ids)

        def forward() -> tuple[Tensor, dict[int, Tensor]]:
            out = self._run(buffers.ids, buffers.rows, taps)
            return self.decoder.logits(out.hidden), out.taps

        scored: tuple[Tensor, dict[int, Tensor]] = self.recordings.run((bucket, taps), forward)
        return scored

    def hidden(
        self, parts: Seq[NewRows], *, ids: Tensor | None = None, taps: Collection[int] = (), bulk: bool = False
    ) -> RunOutput:
        """One pass that is not recorded, of any size: hidden states [R, D]. `bulk`: its products are not cut."""
        rows = sum(len(part.ids) for part in parts)
        pages = max(len(part.pages) for part in parts)
        bucket = Bucket(rows=rows, seqs=len(parts), pages=pages, block=block_rows(self._groups))
        buffers = RowBuffers(bucket, self._dustbin, self.decoder.device)
        buffers.fill(parts, ids)
        return self._run(buffers.ids, buffers.rows, taps, bulk=((0, rows),) if bulk else ())

    def chain(self, parts: Seq[ChainRows], steps: int) -> Tensor:
        """Feed each sequence's new rows, then `steps` - 1 times the best token: [1 + steps, S of the bucket].

        Row 0 is the last token fed, row i the i-th token found; valid until the next chain of the same shape. The
        slots of all steps must be reserved.
        """
        self._follow_pool()
        bucket = self._bucket([part.new for part in parts])
        key = (bucket, steps)
        if key not in self._chains:
            self._chains[key] = ChainBuffers(bucket, steps, self._dustbin, self.decoder.device)
        buffers = self._chains[key]
        buffers.fill(parts)

        def forward() -> Tensor:
            first = buffers.first
            out = self._run(first.ids, first.rows, ())
            best = _best(self.decoder.logits(out.hidden[first.last]))
            found = [first.ids[first.last], best]
            for rows in buffers.steps:
                out = self._run(best, rows, ())
                best = _best(self.decoder.logits(out.hidden))
                found.append(best)
            return torch.stack(found)

        tokens: Tensor = self.recordings.run(key, forward)
        return tokens

    def _bucket(self, parts: Seq[NewRows]) -> Bucket:
        rows, pages = sum(len(part.ids) for part in parts), max(len(part.pages) for part in parts)
        rows = max(rows, self._least_rows)
        return find_bucket(rows=rows, seqs=len(parts), pages=pages, groups=self._groups, max_pages=self._max_pages)

    def _run(self, ids: Tensor, rows: PagedRows, taps: Collection[int], bulk: Seq[RowRange] = ()) -> RunOutput:
        keys, values = self._pool.pool()
        context = PagedContext(keys, values, rows, self._attention, bulk)
        return self.decoder.run(self.decoder.embed(ids, rows.positions), rows.positions, context, taps=taps)

    def _follow_pool(self) -> None:
        """Recordings stand on one pool: a grown one is another."""
        place = self._pool.pool()[0].data_ptr()
        if place != self._place:
            self.recordings.forget()
            self._place = place


def _best(logits: Tensor) -> Tensor:
    return logits.max(-1).indices
