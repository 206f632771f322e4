"""The target: a decoder, a cache, and one ragged pass over both. It also serves drafters that are part of the target.

The runner knows shapes, not methods: a draft may restart from hidden states (`Draft.resume`), bring its own mask or
embeddings, and have probe nodes; a drafter may run some of the layers (`run`), over tentative rows that stand in the
cache exactly where the next pass expects them (`tentative`), or over a cache of its own.
"""

from collections.abc import Collection
from collections.abc import Sequence as Seq
from functools import cached_property, partial

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.cache.paged import PagedCache
from outdraft.cache.shared_rows import SharedRows
from outdraft.core.draft import Role
from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.special_rows import vectors_of
from outdraft.core.target import Recorder, Replay, TargetOutput
from outdraft.engine.layer_by_layer import LayerByLayer, catch_up, embedded, put_in, scored
from outdraft.engine.plain_rows import PlainRows
from outdraft.models.networks.guess import guess_with
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetOrigin, TargetPort
from outdraft.models.target.open_port import open_port
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment
from outdraft.options.errors import CacheFullError, CapabilityError, RequestError


class Runner:
    """`Target` over a `Network`, and the door to it for drafters.

    `exact`: a row's result does not depend on the pass it is in.
    """

    record: Recorder | None = None
    mixes = False  # prompt chunks of any length and decoding rows may share a pass: no bit depends on it

    def __init__(
        self,
        decoder: Network,
        *,
        max_len: int | None = None,
        exact: bool = True,
        cache: CacheConfig | None = None,
        origin: TargetOrigin | None = None,
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
        self._shifts = config.first_position(self.max_len) > 0  # long texts stand at other positions than short ones
        self.cache_config = (cache or CacheConfig()).with_own_pool()
        self.cache = self.cache_config.build_with(
            config.states(),
            config.num_layers,
            config.num_kv_heads,
            config.head_dim,
            self.dtype,
            self.device,
            self.max_len,
        )
        independent = decoder.exact and (exact or decoder.kernels != "pytorch")
        self.plain_rows = None if independent or not self.cache.can_trim else PlainRows(self.cache, self._decode_row)
        self._origin = origin or TargetOrigin()
        self.mixes = independent and decoder.kernels != "pytorch"
        self.slices = config.num_layers if self.mixes else 1
        self.shared: SharedRows | None = None  # what texts take over from earlier ones
        if self.cache_config.prefixes and isinstance(self.cache, PagedCache):
            self.shared = SharedRows(self.cache, whole_texts=self.mixes)
        self._scorer = guess_with(decoder) if isinstance(decoder, NativeDecoder) else None

    @cached_property
    def port(self) -> TargetPort:
        """What a drafter may ask of the target; opened for the first that guesses."""
        return open_port(
            self.decoder,
            self.cache,
            max_len=self.max_len,
            exact=self.exact,
            record=self.record,
            origin=self._origin,
            own_rows=self.cache_config.of_drafters,
        )

    def begin(self, seq: Sequence) -> int:
        """Make room for a new sequence; returns how many of its rows are there already, left by an earlier text."""
        vectors = seq.request.prompt_embeds
        if vectors is not None and vectors.shape != (seq.prompt_len, self.hidden_size):
            raise RequestError(
                f"prompt_embeds has shape {list(vectors.shape)}: it must be one vector of width {self.hidden_size} for "
                f"each of the prompt's {seq.prompt_len} tokens"
            )
        if self._shifts:
            given = seq.request.prompt_positions
            seq.first_position = self.decoder.config.first_position(
                seq.longest if given is None else max(seq.longest, seq.longest - seq.prompt_len + given[-1] + 1)
            )
        self.cache.add(seq.id)
        num_there = 0
        if self.shared is not None and not seq.scores_prompt:  # rows whose logits are asked for must be read
            num_there = self.shared.adopt(seq)
        if self.plain_rows is not None:
            self.plain_rows.begin(seq, num_there)
        return num_there

    def end(self, seq: Sequence) -> None:
        self.cache.free(seq.id)
        if self.plain_rows is not None:
            self.plain_rows.end(seq)

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        if self.plain_rows is not None:
            self.plain_rows.commit(seq, keep)
        else:
            self.cache.commit(seq.id, keep)
        if self.shared is not None:
            self.shared.publish(seq)

    def forward(self, packed: PackedDrafts, taps: Collection[int] = ()) -> TargetOutput:
        ids_say_all = packed.starts_from_ids and not any(packed.prompt_rows)
        if self._scorer is not None and ids_say_all and min(taps, default=1) > 0:
            context = CachedContext(self.cache, self._segments(packed))
            hidden, kept = dict[int, Tensor](), dict[int, Tensor]()
            for tap in taps:
                hidden[tap] = kept[tap - 1] = torch.empty(len(packed.tokens), self.hidden_size)
            _, logits = self._scorer.feed(
                packed.tokens.tolist(), packed.positions.tolist(), context, packed.nodes.tolist(), kept=kept
            )
            return TargetOutput(logits=logits, hidden=hidden)
        positions, h = embedded(self.decoder, packed)
        drifted = self.plain_rows.drifted(packed) if self.plain_rows is not None else frozenset[int]()
        segments = self._segments(packed)
        start_layer = 0
        if not packed.starts_from_ids:
            start_layer, h = catch_up(self.decoder, self.cache, packed, h, positions, segments, exact=self.exact)
        out = self.decoder.run(
            h, positions, CachedContext(self.cache, segments, self.exact), start=start_layer, taps=taps
        )
        return scored(self.decoder, packed, out.hidden, out.taps, drifted)

    def start(self, packed: PackedDrafts, taps: Collection[int] = ()) -> LayerByLayer:
        """As `forward`, in slices, of rows that start at the first layer."""
        positions, h = embedded(self.decoder, packed)
        segments = self._segments(packed)
        return LayerByLayer(
            self.decoder,
            h,
            positions,
            lambda: CachedContext(self.cache, segments, self.exact),
            taps,
            finish=partial(scored, self.decoder, packed),
        )

    def replay(self, packed: PackedDrafts, i: int, node: int) -> Replay:
        """Score a node again from plain decoding's own rows."""
        assert self.plain_rows is not None, "rows that do not depend on the pass need no replay"
        return self.plain_rows.replay(packed, i, node)

    def _decode_row(self, seq: Sequence, token: int, at: int) -> Tensor:
        """Logits [1, V] of one row in a pass of its own; there is room for it in the cache."""
        place = torch.tensor([seq.position(at)], device=self.device)
        h = self.decoder.embed(torch.tensor([token], device=self.device), place)
        if (vectors := vectors_of(seq, at, at + 1)) is not None:
            h = put_in(h, vectors)
        context = CachedContext(self.cache, [Segment(seq=seq.id, start=0, stop=1, base=at)], exact=False)
        return self.decoder.logits(self.decoder.run(h, place, context).hidden)

    def _segments(self, packed: PackedDrafts) -> list[Segment]:
        """Each sequence's rows, for which there is room in the cache."""
        segments = list[Segment]()
        try:
            for i in range(len(packed.seqs)):
                segments.append(self._segment(packed, i))
                self.cache.reserve(segments[-1].seq, segments[-1].stop - segments[-1].start)
        except CacheFullError:
            for segment in segments:  # what was given to the first of them is there for a smaller pass
                self.cache.truncate(segment.seq, self.cache.length(segment.seq))
            raise
        return segments

    def _segment(self, packed: PackedDrafts, i: int) -> Segment:
        """Sequence i's rows: certain ones in a chain, then the draft's tree below the last of them."""
        seq, draft, tree, certain = packed.seqs[i], packed.drafts[i], packed.trees[i], packed.num_certain[i]
        start, stop = packed.row_starts[i], packed.row_starts[i + 1]
        n = stop - start
        parents, mask, exact_rows = None, None, n
        if draft is not None and tree is not None:
            if tree.parents != list(range(-1, len(tree.parents) - 1)):
                below = [parent + certain for parent in tree.parents]
                parents = (*range(-1, certain - 1), *below)
            if draft.mask is not None:
                mask = torch.ones(n, n, dtype=torch.bool).tril()
                mask[certain:, certain:] = draft.mask.cpu()
            if draft.roles is not None:
                kept = (draft.roles == Role.VERIFY).nonzero()
                exact_rows = certain + int(kept[-1]) + 1
        base = self.cache.length(seq.id)
        return Segment(
            seq=seq.id,
            start=start,
            stop=stop,
            base=base,
            parents=parents,
            mask=mask,
            exact_rows=exact_rows,
            bulk=min(certain, max(0, seq.prompt_len - 1 - base)),  # what was written is read again row by row
        )
