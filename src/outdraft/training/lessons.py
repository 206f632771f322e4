"""The target's side of training: packed rows in, its states and distributions out."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from outdraft.core.learner import Lesson
from outdraft.models.networks.base import Decoder
from outdraft.nn.linear import LinearMap
from outdraft.nn.packed import PackedContext
from outdraft.options.errors import DecodingError
from outdraft.training.computing import computing
from outdraft.training.document_states import DocumentStates
from outdraft.training.packing import PackedRows
from outdraft.training.states import PassCache, PassStates


class Teacher:
    """A frozen target, asked for what it says of texts. `cache`: of passes, on disk or in memory."""

    def __init__(self, target: Decoder, taps: Collection[int], cache: PassCache | DocumentStates | None = None) -> None:
        self.target = target.requires_grad_(False)
        self.cache = cache
        self._taps = tuple(taps)
        make_plain(target)

    def computing(self) -> torch.autocast:
        """Passes of whatever learns from it compute as it does; their parameters are float32."""
        return computing(self.target.device, self.target.dtype)

    @torch.no_grad()
    def lesson(self, rows: PackedRows) -> Lesson:
        """Its states after every token. Raises `DecodingError` for states that are no numbers."""
        device = self.target.device
        ids, documents = rows.ids.to(device), rows.documents.to(device)
        batch, length = ids.shape[0], ids.shape[1] - 1
        read, positions = ids[:, :-1].flatten(), places_of(documents[:, :-1]).flatten()
        cache = None if rows.own else self.cache  # what a draft wrote does not come again
        found = cache.find(rows) if cache is not None else None
        if found is None:
            context = PackedContext(batch, length, documents[:, :-1])
            out = self.target.run(self.target.embed(read, positions), positions, context, taps=self._taps)
            _require_numbers(out.hidden, length)
            found = PassStates(hidden=out.hidden, taps=dict(out.taps))
            if cache is not None:
                cache.keep(rows, found)
        return Lesson(
            ids=ids,
            documents=documents,
            positions=positions,
            counts=rows.counts.to(device).flatten(),
            states=found.hidden.to(device),
            taps={tap: one.to(device) for tap, one in found.taps.items()},
            moment=rows.moment,
        )

    def logits(self, states: Tensor) -> Tensor:
        """Final states [n, D] -> [n, V]."""
        return self.target.logits(states)


def make_plain(module: nn.Module) -> None:
    """In place: maps are plain products again, which have gradients and follow autocast.

    Inference packs weights into a layout that has no gradient.
    """
    for part in module.modules():
        if isinstance(part, LinearMap):
            part.unpack()
            part.tile = None
        if isinstance(part, Decoder):
            part.exact = False


def _require_numbers(hidden: Tensor, length: int) -> None:
    """Raise `DecodingError` for states [B * T, D] that are no numbers."""
    if not bool(torch.isfinite(hidden).all()):
        row = int((~torch.isfinite(hidden)).any(-1).nonzero()[0, 0]) // length
        raise DecodingError(
            f"the target's states in row {row} of a batch are not finite numbers: its weights are damaged, or "
            "overflow in their number format (try --dtype float32)"
        )


def places_of(documents: Tensor) -> Tensor:
    """The index of every token in its own document: [B, T] -> [B, T]."""
    place = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return place - torch.where(begins, place, 0).cummax(1).values
