"""The target's states of documents, kept from the first pass over each: a request is judged, and learned from again.

    rows of documents --> all known: their states, put together        --> a lesson without a pass
                      \\-> else: one pass over all rows (`lessons.py`)  --> each document's states, the oldest dropped

A document's states do not depend on what lies beside it, but for the last bits of a product. Of its last token nothing
is guessed, so that token's states are zeros here; so are those of documents in which nothing counts, as padding.
"""

from collections.abc import Iterator

from torch import Tensor

from outdraft.training.packing import PackedRows
from outdraft.training.states import PassStates


class DocumentStates:
    """Holds at most `most` bytes of states."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._held: dict[bytes, PassStates] = {}  # the least recently used first
        self._like: PassStates | None = None  # whose sizes and types all have

    def find(self, rows: PackedRows) -> PassStates | None:
        """The states of all rows; None where a document is not known."""
        spans = list(_spans(rows))
        if self._like is None or any(ids not in self._held for _, ids in spans):
            return None
        length = rows.ids.shape[0] * (rows.ids.shape[1] - 1)

        def whole(like: Tensor) -> Tensor:
            return like.new_zeros(length, like.shape[1])

        made = PassStates(hidden=whole(self._like.hidden), taps={t: whole(x) for t, x in self._like.taps.items()})
        for own, ids in spans:
            self._held[ids] = held = self._held.pop(ids)
            made.hidden[own] = held.hidden
            for tap, states in held.taps.items():
                made.taps[tap][own] = states
        return made

    def keep(self, rows: PackedRows, states: PassStates) -> None:
        """Take the states of a pass over these rows."""
        for own, ids in _spans(rows):
            if ids in self._held:
                continue
            taps = {tap: x[own].clone() for tap, x in states.taps.items()}
            self._held[ids] = self._like = PassStates(hidden=states.hidden[own].clone(), taps=taps)
            self._bytes += _size(self._like)
        while self._bytes > self._most and self._held:
            self._bytes -= _size(self._held.pop(next(iter(self._held))))


def _spans(rows: PackedRows) -> Iterator[tuple[slice, bytes]]:
    """Of each document of n + 1 tokens in which something counts: its n rows of the flat B * T, and its ids."""
    length = rows.ids.shape[1] - 1
    for b, documents in enumerate(rows.documents):
        _, sizes = documents.unique_consecutive(return_counts=True)
        start = 0
        for size in sizes.tolist():
            stop = start + size - 1  # the last token's row guesses nothing
            if bool(rows.counts[b, start:stop].any()):
                ids = rows.ids[b, start : stop + 1].numpy().tobytes()
                yield slice(b * length + start, b * length + stop), ids
            start += size


def _size(states: PassStates) -> int:
    return states.hidden.nbytes + sum(one.nbytes for one in states.taps.values())
