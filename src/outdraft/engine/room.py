"""`Room` over a runner's paged cache."""

from outdraft.cache.hybrid import HybridCache
from outdraft.cache.paged import PagedCache
from outdraft.core.cache import PAGE
from outdraft.core.room import Room, Unbounded
from outdraft.core.sequence import Sequence
from outdraft.engine.runner import Runner


def room_of(runner: Runner) -> Room:
    """The memory of a runner whose drafter is built: from here on the size of its pool is settled."""
    cache = runner.cache.rows if isinstance(runner.cache, HybridCache) else runner.cache
    if isinstance(cache, PagedCache) and (num_pages := cache.num_pages) is not None:
        return CacheRoom(runner, cache, num_pages)
    return Unbounded(mixes=runner.mixes, slices=runner.slices)


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
