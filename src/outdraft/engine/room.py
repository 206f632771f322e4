"""`Room` over a runner's paged cache; a guided text stands in it twice: its shadow takes and gives back as it does."""

from collections.abc import Callable
from dataclasses import replace

from outdraft.cache.hybrid import HybridCache
from outdraft.cache.paged import PagedCache
from outdraft.core.cache import PAGE
from outdraft.core.room import Room, Unbounded
from outdraft.core.sequence import Sequence
from outdraft.decode.guard import GuardedTarget, unguarded
from outdraft.decode.guidance import GuidedTarget, guides, shadow_of
from outdraft.decode.parts import Parts
from outdraft.engine.runner import Runner


def room_of(runner: Runner) -> Room:
    """The memory of a runner whose drafter is built: from here on the size of its pool is settled."""
    cache = runner.cache.rows if isinstance(runner.cache, HybridCache) else runner.cache
    if isinstance(cache, PagedCache) and (num_pages := cache.num_pages) is not None:
        return CacheRoom(runner, cache, num_pages)
    return Unbounded(mixes=runner.mixes, slices=runner.slices)


def guidance_around(guard: float | None) -> Callable[[Parts], Parts]:
    """What stands guidance around the target of some parts, inside the guard of this bound, if it has one."""

    def guide(bare: Parts) -> Parts:
        if guides(bare.target):
            return bare
        guided = GuidedTarget(unguarded(bare.target), apart=guard is not None)
        target = guided if guard is None else GuardedTarget(guided, guard)
        return replace(bare, target=target, room=GuidedRoom(bare.room, guided))

    return guide


class CacheRoom:
    """A paged pool that does not grow."""

    def __init__(self, runner: Runner, cache: PagedCache, num_pages: int) -> None:
        self.mixes, self.slices = runner.mixes, runner.slices
        self.capacity = num_pages * PAGE
        self.cuts = not runner.cache_config.is_given
        self._runner = runner
        self._cache = cache

    @property
    def free(self) -> int:
        return self._cache.num_free

    def wanted(self, seq: Sequence) -> int:
        shared = self._runner.shared
        return -(-len(seq.tokens) // PAGE) - (0 if shared is None else shared.num_in_use(seq))

    def awaits(self, seq: Sequence, reader: Sequence) -> bool:
        return self._runner.shared is not None and self._runner.shared.awaits(seq, reader)

    def missing(self, seq: Sequence, num_rows: int) -> int:
        return self._cache.num_missing(seq.id, num_rows)

    def held(self, seq: Sequence) -> int:
        return self._cache.num_own(seq.id)

    def forget(self) -> None:
        if (pool := self._runner.cache_config.pool) is not None:
            pool.forget()


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
