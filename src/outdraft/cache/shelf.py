"""Caches that stay while the networks change which have their rows in them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from outdraft.cache.paged import PagedCache
from outdraft.cache.static import StaticCache
from outdraft.options.errors import CapabilityError


@dataclass(slots=True)
class CacheShelf:
    """The caches of a drafter's networks: one that replaces another has its rows where that one has them.

    The pool is not asked again: its size is settled with the first request, and a text's rows are of one network.
    """

    made: list[tuple[Any, StaticCache | PagedCache]] = field(default_factory=list)
    num_given: int = 0
    num_networks: int = 0  # before the one that is built now

    def begin(self) -> None:
        """Another network is built: it gets the caches of the one before, in the same order."""
        self.num_given, self.num_networks = 0, self.num_networks + 1

    def give(self, shape: Any, make: Callable[[], StaticCache | PagedCache]) -> StaticCache | PagedCache:
        """The next cache. Raises `CapabilityError` where the network before had one of another shape there."""
        if self.num_given == len(self.made):
            self.made.append((shape, make()))
        known, cache = self.made[self.num_given]
        if known != shape:
            raise CapabilityError(
                f"a network that keeps rows of (layers, heads, width) {shape} cannot replace one with {known}: give "
                "one of the same sizes"
            )
        self.num_given += 1
        return cache
