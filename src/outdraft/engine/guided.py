"""Parts whose target guides: what an engine steps with while a request asks for guidance (`composition.py`).

A guided text stands in memory twice: its shadow takes and gives back as it does.
"""

from dataclasses import replace

from outdraft.core.room import Room
from outdraft.core.sequence import Sequence
from outdraft.decode.guard import GuardedTarget, unguarded
from outdraft.decode.guidance import GuidedTarget, guides, shadow_of
from outdraft.decode.parts import Parts


def guided(bare: Parts, guard: float | None) -> Parts:
    """The same with guidance around their target, inside a guard of this bound, if it has one."""
    if guides(bare.target):
        return bare
    inner = GuidedTarget(unguarded(bare.target), apart=guard is not None)
    target = inner if guard is None else GuardedTarget(inner, guard)
    return replace(bare, target=target, room=GuidedRoom(bare.room, inner))


class GuidedRoom:
    """`room` counts the pages of one sequence of the target."""

    def __init__(self, room: Room, target: GuidedTarget) -> None:
        self._room = room
        self._target = target

    @property
    def mixes(self) -> bool:
        return self._room.mixes

    @property
    def slices(self) -> int:
        return self._room.slices

    @property
    def capacity(self) -> int | None:
        return self._room.capacity

    @property
    def cuts(self) -> bool:
        return self._room.cuts

    @property
    def free(self) -> int:
        return self._room.free

    def wanted(self, seq: Sequence) -> int:
        own = self._room.wanted(seq)
        return own + self._room.wanted(shadow_of(seq)) if seq.request.params.guides else own

    def awaits(self, seq: Sequence, reader: Sequence) -> bool:
        return self._room.awaits(seq, reader)

    def missing(self, seq: Sequence, num_rows: int) -> int:
        own, shadow = self._room.missing(seq, num_rows), self._target.shadow(seq)
        if shadow is None:
            return own
        # Before the pending token both read a chunk; from there on they have as many rows.
        judged = num_rows - seq.num_unread
        rows = shadow.num_unread + judged if judged > 0 else min(shadow.num_unread, seq.turn.max_chunk)
        return own + self._room.missing(shadow, rows)

    def held(self, seq: Sequence) -> int:
        own, shadow = self._room.held(seq), self._target.shadow(seq)
        return own if shadow is None else own + self._room.held(shadow)

    def forget(self) -> None:
        self._room.forget()
