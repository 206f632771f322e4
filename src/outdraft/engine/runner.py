"""The target: a decoder, a cache, and one ragged pass over both. It also serves drafters that are part of the target.

The runner knows shapes, not methods: a draft may restart from hidden states (`Draft.resume`), bring its own mask or
embeddings, and have probe nodes; a drafter may run some of the layers (`run`), over tentative rows that stand in the
cache exactly where the next pass expects them (`tentative`), or over a cache of its own.
"""

from collections.abc import Collection
from collections.abc import Sequence as Seq
from pathlib import Path

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.core.draft import Role
from outdraft.core.errors import CapabilityError
from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import Recorder, Replay, TargetOutput
from outdraft.engine.pass_time import measure_pass
from outdraft.engine.plain_rows import PlainRows
from outdraft.models.guess import guess_with
from outdraft.models.native import NativeDecoder
from outdraft.models.network import Network
from outdraft.nn.branches import BranchContext, Branches
from outdraft.nn.context import AttentionContext, CachedContext, Segment
from outdraft.nn.segment import chain_segments


class Runner:
    """`Target` and `TargetPort` over a `Network`. `exact`: a row's result does not depend on the pass it is in."""

    record: Recorder | None = None
    source: Path | None = None
    codec: object | None = None

    def __init__(
        self, decoder: Network, *, max_len: int | None = None, exact: bool = True, cache: CacheConfig | None = None
    ) -> None:
        config = decoder.config
        if max_len is not None and max_len > config.max_len:
            raise CapabilityError(f"max_model_len={max_len} exceeds the model's context of {config.max_len} tokens")
        self.decoder = decoder
        self.exact = exact
        self.max_len = max_len or config.max_len
        self.vocab_size = config.vocab_size
        self.hidden_size = config.hidden_size
        self.num_layers = config.num_layers
        self.device, self.dtype = decoder.device, decoder.dtype
        self.kv_shape = (config.num_layers, config.num_kv_heads, config.head_dim)
        self.cache_config = cache or CacheConfig()
        self.cache = self.cache_config.build(*self.kv_shape, self.dtype, self.device, self.max_len)
        independent = decoder.exact and (exact or decoder.kernels != "pytorch")
        self.plain_rows = None if independent else PlainRows(decoder, self.cache)
        self._scorer = guess_with(decoder) if isinstance(decoder, NativeDecoder) else None

    def begin(self, seq: Sequence) -> None:
        """Make room for a new sequence."""
        self.cache.add(seq.id)
        if self.plain_rows is not None:
            self.plain_rows.begin(seq)

    def end(self, seq: Sequence) -> None:
        """Forget the sequence."""
        self.cache.free(seq.id)
        if self.plain_rows is not None:
            self.plain_rows.end(seq)

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Keep these rows of the last pass."""
        if self.plain_rows is not None:
            self.plain_rows.commit(seq, keep)
        else:
            self.cache.commit(seq.id, keep)

    def forward(self, packed: PackedDrafts, taps: Collection[int] = ()) -> TargetOutput:
        """Score every draft node in one pass: logits [M, V], and the taps' hidden states at all rows."""
        if self._scorer is not None and packed.starts_from_ids and not taps:
            ids, places, nodes = packed.tokens.tolist(), packed.positions.tolist(), packed.nodes.tolist()
            _, logits = self._scorer.feed(ids, places, CachedContext(self.cache, self._segments(packed)), nodes)
            return TargetOutput(logits=logits, hidden={}, drifted=frozenset())
        positions = packed.positions.to(self.device)
        h = self.decoder.embed(packed.tokens.to(self.device), positions)
        for i, draft in enumerate(packed.drafts):
            if draft is not None and draft.embeds is not None:
                own = slice(packed.row_starts[i] + packed.num_certain[i], packed.row_starts[i + 1])
                h[own] = torch.where(draft.embeds.isnan(), h[own], draft.embeds.to(h.dtype))
        drifted = self.plain_rows.drifted(packed) if self.plain_rows is not None else frozenset[int]()
        segments = self._segments(packed)
        start, h = self._catch_up(packed, h, positions, segments)
        out = self.decoder.run(h, positions, CachedContext(self.cache, segments, self.exact), start=start, taps=taps)
        hidden = out.hidden if len(packed.nodes) == len(h) else out.hidden[packed.nodes.to(self.device)]
        return TargetOutput(logits=self.decoder.logits(hidden), hidden=out.taps, drifted=drifted)

    def replay(self, packed: PackedDrafts, i: int, node: int) -> Replay:
        """Score a node again from plain decoding's own rows."""
        assert self.plain_rows is not None, "rows that do not depend on the pass need no replay"
        return self.plain_rows.replay(packed, i, node)

    def _segments(self, packed: PackedDrafts) -> list[Segment]:
        """Each sequence's rows, for which there is room in the cache."""
        segments = [self._segment(packed, i) for i in range(len(packed.seqs))]
        for segment in segments:
            self.cache.reserve(
                segment.seq, segment.base - self.cache.length(segment.seq) + segment.stop - segment.start
            )
        return segments

    def _segment(self, packed: PackedDrafts, i: int) -> Segment:
        """Sequence i's rows: certain ones in a chain, then the draft's tree below the last of them."""
        seq, draft, tree, certain = packed.seqs[i], packed.drafts[i], packed.trees[i], packed.num_certain[i]
        start, stop = packed.row_starts[i], packed.row_starts[i + 1]
        n = stop - start
        parents, mask, exact_rows = None, None, n
        if draft is not None and tree is not None:
            if any(parent != node - 1 for node, parent in enumerate(tree.parents)):
                below = [parent + certain for parent in tree.parents]
                parents = (*range(-1, certain - 1), *below)
            if draft.mask is not None:
                mask = torch.ones(n, n, dtype=torch.bool).tril()
                mask[certain:, certain:] = draft.mask.cpu()
            if draft.roles is not None:
                kept = (draft.roles == Role.VERIFY).nonzero()
                exact_rows = certain + int(kept[-1]) + 1
        return Segment(
            seq=seq.id, start=start, stop=stop, base=self.cache.length(seq.id), parents=parents, mask=mask,
            exact_rows=exact_rows, bulk=certain,
        )  # fmt: skip

    def _catch_up(
        self, packed: PackedDrafts, h: Tensor, positions: Tensor, segments: Seq[Segment]
    ) -> tuple[int, Tensor]:
        """Bring all rows to one layer: rows whose draft resumes at layer e are there, the others run up to it."""
        resumes = {
            i: draft.resume for i, draft in enumerate(packed.drafts) if draft is not None and draft.resume is not None
        }
        if not resumes:
            return 0, h
        layer = next(iter(resumes.values())).layer
        if any(resume.layer != layer for resume in resumes.values()) or any(packed.num_certain[i] for i in resumes):
            raise CapabilityError("drafts of one pass resume at different layers: one drafter must use one exit layer")
        rows: list[int] = []
        fresh: list[Segment] = []
        for i, segment in enumerate(segments):
            if i in resumes:
                h[segment.start : segment.stop] = resumes[i].hidden
            else:
                at = len(rows)
                rows += range(segment.start, segment.stop)
                fresh.append(_moved(segment, at))
        if rows:
            context = CachedContext(self.cache, fresh, self.exact)
            h[rows] = self.decoder.run(h[rows], positions[rows], context, stop=layer).hidden
        return layer, h

    @property
    def native(self) -> NativeDecoder | None:
        """The decoder, if the kernels hold it."""
        return self.decoder if isinstance(self.decoder, NativeDecoder) else None

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings: [n] -> [n, D]."""
        return self.decoder.embed(ids.to(self.device), positions.to(self.device))

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head: [n, D] -> [n, V]."""
        return self.decoder.logits(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """Head alone: [n, D] -> [n, V]."""
        return self.decoder.head(hidden)

    @torch.inference_mode()
    def score(self, ids: Tensor) -> Tensor:
        """Logits after each of n short texts, each by itself: [n, T] -> [n, V]. The live cache is not touched."""
        n, length = ids.shape
        positions = torch.arange(length, device=self.device).repeat(n)
        out = self.run(ids.flatten(), positions, self._aside(n, length))
        return self.decoder.logits(out[length - 1 :: length])

    def _aside(self, n: int, length: int) -> CachedContext:
        """n texts of `length` rows each, over a cache of their own."""
        cache = CacheConfig().build(*self.kv_shape, self.dtype, self.device, length)
        for i in range(n):
            cache.add(i)
            cache.reserve(i, length)
        return CachedContext(cache, chain_segments(range(n), [length] * n, [0] * n), self.exact)

    def run(
        self, ids: Tensor, positions: Tensor, context: AttentionContext, *, stop: int | None = None,
        skip: Skip = NO_SKIP,
    ) -> Tensor:  # fmt: skip
        """Layers [0, stop), all by default, over any context: ids, positions [N] -> [N, D]."""
        positions = positions.to(self.device)
        h = self.decoder.embed(ids.to(self.device), positions)
        return self.decoder.run(h, positions, context, stop=stop, skip=skip).hidden

    def rows(self, seq: Sequence, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of the committed rows, each [Hkv, n, d]."""
        return self.cache.read(seq.id, layer, self.cache.length(seq.id))

    @torch.inference_mode()
    def pass_seconds(self, num_rows: int) -> float:
        """Seconds of a pass over so many rows, measured now."""
        rows, context = list(range(num_rows)), self._aside(1, num_rows)
        if (scorer := self._scorer) is not None:
            return measure_pass(lambda: scorer.feed([0] * num_rows, rows, context, rows)[1])
        ids, positions = torch.zeros(num_rows, dtype=torch.long), torch.tensor(rows)
        return measure_pass(lambda: self.decoder.logits(self.run(ids, positions, context)))

    def tentative(self, seqs: Seq[Sequence], offset: int, rooms: Seq[int]) -> CachedContext:
        """One row of each sequence, `offset` places after the pending one, with room for `rooms[i]` rows from it on."""
        for seq, room in zip(seqs, rooms, strict=True):
            self.cache.reserve(seq.id, offset + room)
        ids, bases = [seq.id for seq in seqs], [self.cache.length(seq.id) + offset for seq in seqs]
        return CachedContext(self.cache, chain_segments(ids, [1] * len(ids), bases), self.exact)

    def again(self, seqs: Seq[Sequence], counts: Seq[int]) -> BranchContext:
        """The last `counts[i]` committed rows once more, written behind the text."""
        parts, start = [], 0
        for seq, count in zip(seqs, counts, strict=True):
            length = self.cache.length(seq.id)
            self.cache.reserve(seq.id, count)
            above = [list(range(count, count + i)) for i in range(count)]  # counted from the first row seen again
            parts.append(Branches(seq=seq.id, start=start, text=length - count, base=length, above=above))
            start += count
        return BranchContext(self.cache, parts)


def _moved(segment: Segment, start: int) -> Segment:
    """The same segment at other rows of the pass."""
    return Segment(
        seq=segment.seq, start=start, stop=start + segment.stop - segment.start, base=segment.base,
        parents=segment.parents, mask=segment.mask, exact_rows=segment.exact_rows, bulk=segment.bulk,
    )  # fmt: skip
