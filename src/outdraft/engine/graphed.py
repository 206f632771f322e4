"""The target on a GPU: verify passes over static memory, one recorded graph for each bucket of rows, sequences, pages.

    decoding rows alone, any tree or mask      recorded (`StaticDecoder.score`)
    with prompt rows, or more than 256 rows    the same attention, kernel by kernel
    resumed at a layer, or with own embeddings the runner's own way

It is the runner in all else. Products run in pieces of `row_tile` rows, so that a chain's rows have the bits of one row
at a time, whatever shares their pass; packed weights need no pieces, and cost by the row. A tree's rows lie at other
slots, and their sums may round otherwise: these the guard replays, in the recorded pass of one row.
"""

from collections.abc import Collection
from dataclasses import replace

from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.cache.paged import PagedCache
from outdraft.core.cache import PAGE
from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.special_rows import vectors_of
from outdraft.core.target import Recorder, TargetOutput
from outdraft.engine.layer_by_layer import logits_of
from outdraft.engine.runner import Runner
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetOrigin
from outdraft.models.networks.static import StaticDecoder
from outdraft.nn.attention.rows import NewRows, chain_bits, mask_bits, tree_bits
from outdraft.nn.quant.rounded import RoundedMap, tell_floats
from outdraft.nn.segment import Segment
from outdraft.options.errors import CapabilityError

MAX_ROWS = 256  # of a recorded pass
ROW_TILE = 32  # rows of a matrix product


class GraphedRunner(Runner):
    """`record`: how a pass is recorded (`nn/capture.py`); drafters with a network of their own use it too.

    `row_tile`: rows of a matrix product, a power of two; None: as many as the pass has.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        record: Recorder,
        max_len: int | None = None,
        cache: CacheConfig | None = None,
        origin: TargetOrigin | None = None,
        row_tile: int | None = ROW_TILE,
    ) -> None:
        if states := decoder.config.states():
            raise CapabilityError(
                f"recorded passes keep keys and values only, and layers {sorted(states)} of this model are recurrent: "
                "run it on a CPU"
            )
        paged = replace(cache or CacheConfig(), layout="paged")
        self.record = record
        super().__init__(decoder, max_len=max_len, exact=False, cache=paged, origin=origin)
        assert isinstance(self.cache, PagedCache)
        self._pool = self.cache
        if self.shared is not None:
            self.shared.unit = PAGE  # nothing is promised about bits
        tell_floats(decoder)
        decoder.tile_rows(row_tile)
        if self.plain_rows is not None:
            self.plain_rows.chains = row_tile is not None
        # One map is enough for passes of few rows: the others still fill up the rows of their own products.
        is_packed = any(isinstance(one, RoundedMap) and one.rows_apart for one in decoder.modules())
        least_rows = 1 if is_packed or row_tile is None else row_tile
        self.static = StaticDecoder(decoder, self._pool, record, least_rows=least_rows)

    def forward(self, packed: PackedDrafts, taps: Collection[int] = ()) -> TargetOutput:
        if not packed.starts_from_ids:
            return super().forward(packed, taps)
        drifted = self.plain_rows.drifted(packed) if self.plain_rows is not None else frozenset[int]()
        segments = self._segments(packed)
        on_host = packed.tokens.device.type == "cpu"
        ids: list[int] = packed.tokens.tolist() if on_host else [0] * packed.row_starts[-1]
        positions: list[int] = packed.positions.tolist()
        parts = [self._new_rows(segment, ids, positions) for segment in segments]
        new_ids = None if on_host else packed.tokens
        num_rows = len(ids)
        if len(packed.nodes) < num_rows or num_rows > MAX_ROWS:
            out = self.static.hidden(parts, ids=new_ids, taps=taps, bulk=any(packed.prompt_rows))
            nodes = out.hidden[packed.nodes.to(self.device)]
            logits_at = logits_of(self.decoder, out.hidden) if any(packed.prompt_rows) else None
            return TargetOutput(
                logits=self.decoder.logits(nodes), hidden=out.taps, logits_at=logits_at, drifted=drifted
            )
        logits, states = self.static.score(parts, ids=new_ids, taps=tuple(sorted(taps)))
        # A copy: drafters may keep what they saw, and the static memory is the next pass's.
        return TargetOutput(
            logits=logits[:num_rows].clone(),
            hidden={tap: h[:num_rows].clone() for tap, h in states.items()},
            drifted=drifted,
        )

    def _decode_row(self, seq: Sequence, token: int, at: int) -> Tensor:
        """In the recorded pass of one row, which is plain decoding's here."""
        if vectors_of(seq, at, at + 1) is not None:
            return super()._decode_row(seq, token, at)
        part = NewRows(
            ids=[token], positions=[seq.position(at)], base=at, sees=chain_bits(1), pages=self._pool.pages(seq.id)
        )
        return self.static.score([part])[0]

    def _new_rows(self, segment: Segment, ids: list[int], positions: list[int]) -> NewRows:
        own = slice(segment.start, segment.stop)
        return NewRows(
            ids=ids[own],
            positions=positions[own],
            base=segment.base,
            sees=_bits(segment),
            pages=self._pool.pages(segment.seq),
        )


def _bits(segment: Segment) -> list[int]:
    if segment.mask is not None:
        return mask_bits(segment.mask)
    return chain_bits(segment.num_rows) if segment.parents is None else tree_bits(segment.parents)
