"""A pass that runs layer by layer: from ids, vectors or states of a layer, to logits of the draft's nodes.

    ids, vectors -> embedded -> [catch_up: rows whose draft resumes at layer e wait for the others] -> layers -> scored

`LayerByLayer` is such a pass that stops between layers (`core.target.SlicedPass`); its rows wait in between.
"""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

import torch
from torch import Tensor

from outdraft.core.cache import KVCache
from outdraft.core.packing import PackedDrafts
from outdraft.core.target import TargetOutput
from outdraft.models.networks.network import Network
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import AttentionContext
from outdraft.nn.segment import Segment
from outdraft.options.errors import CapabilityError


class LayerByLayer:
    """`context` is made anew for each slice, because the cache may have moved meanwhile.

    `finish`: from what stands behind the last layer, and the taps, what the pass gives back.
    """

    def __init__(
        self,
        decoder: Network,
        h: Tensor,
        positions: Tensor,
        context: Callable[[], AttentionContext],
        taps: Collection[int],
        finish: Callable[[Tensor, Mapping[int, Tensor]], TargetOutput],
    ) -> None:
        self._decoder, self._context, self._finish = decoder, context, finish
        self._h, self._positions = h, positions
        self._wanted = taps
        self._taken: dict[int, Tensor] = {}
        self._layer = 0

    def run(self, num_layers: int) -> TargetOutput | None:
        start, last = self._layer, self._decoder.config.num_layers
        self._layer = min(start + num_layers, last)
        out = self._decoder.run(
            self._h, self._positions, self._context(), start=start, stop=self._layer, taps=self._wanted
        )
        self._h = out.hidden
        self._taken |= out.taps
        return None if self._layer < last else self._finish(self._h, self._taken)


def embedded(decoder: Network, packed: PackedDrafts) -> tuple[Tensor, Tensor]:
    """Positions [R], and what stands before the first layer [R, D]."""
    positions = packed.positions.to(decoder.device)
    h = decoder.embed(packed.tokens.to(decoder.device), positions)
    for start, stop, vectors in zip(packed.row_starts[:-1], packed.row_starts[1:], packed.embeds, strict=True):
        if vectors is not None:
            h[start:stop] = put_in(h[start:stop], vectors)
    return positions, h


def put_in(embedded: Tensor, vectors: Tensor) -> Tensor:
    """Token embeddings [n, D], and in their places the rows of `vectors` [n, D] that are not NaN."""
    vectors = vectors.to(embedded)
    return torch.where(vectors.isnan(), embedded, vectors)


def catch_up(
    decoder: Network,
    cache: KVCache,
    packed: PackedDrafts,
    h: Tensor,
    positions: Tensor,
    segments: Seq[Segment],
    *,
    exact: bool,
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
            fresh.append(replace(segment, start=at, stop=at + segment.num_rows))  # its rows in the pass of these
    if rows:
        context = CachedContext(cache, fresh, exact)
        h[rows] = decoder.run(h[rows], positions[rows], context, stop=layer).hidden
    return layer, h


def scored(
    decoder: Network, packed: PackedDrafts, h: Tensor, taps: Mapping[int, Tensor], drifted: frozenset[int] = frozenset()
) -> TargetOutput:
    """From what stands behind the last layer [R, D]."""
    hidden = h if len(packed.nodes) == len(h) else h[packed.nodes.to(decoder.device)]
    return TargetOutput(
        logits=decoder.logits(hidden),
        hidden=taps,
        drifted=drifted,
        logits_at=logits_of(decoder, h) if any(packed.prompt_rows) else None,
    )


def logits_of(decoder: Network, hidden: Tensor) -> Callable[[range], Tensor]:
    """Logits of some rows of `hidden` [R, D], when they are asked for."""
    return lambda rows: decoder.logits(hidden[rows.start : rows.stop])
