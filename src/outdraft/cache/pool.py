"""The hard size of all key/value memory: one number of bytes, shared by the target's cache and those of drafters.

    memory 512 MiB    target 8 KiB a position, draft model 1 KiB    ->    3,640 pages of 16 positions in each

A row of text takes a row in every cache, so each gets the same number of pages. The caches say what a page of theirs
takes while the engine is put together; with the first page that is wanted the number is settled.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from outdraft.options.errors import CapabilityError


@dataclass(slots=True, kw_only=True)
class PagePool:
    """`num_bytes` for all caches together, or `num_pages` of each."""

    num_bytes: int | None = None
    num_pages: int | None = None
    page_bytes: list[int] = field(default_factory=list)  # of each cache
    forgets: list[Callable[[], None]] = field(default_factory=list)  # of each cache

    def join(self, page_bytes: int, forget: Callable[[], None]) -> None:
        """One more cache, a page of which takes so many bytes. Raises `CapabilityError` where that comes too late.

        `forget`: keep nothing for later texts.
        """
        if self.num_pages is not None and self.num_bytes is not None:
            raise CapabilityError("cache: the pool is in use already: a cache has to join before the first request")
        self.page_bytes.append(page_bytes)
        self.forgets.append(forget)

    def forget(self) -> None:
        """Have every cache keep nothing for later texts."""
        for one in self.forgets:
            one()

    @property
    def bytes_each(self) -> int:
        """What one page of every cache takes together."""
        return sum(self.page_bytes)

    def settle(self) -> int:
        """How many pages each cache has, from now on. Raises `CapabilityError` where that is none."""
        if self.num_pages is None:
            assert self.num_bytes is not None
            self.num_pages = self.num_bytes // max(1, self.bytes_each)
            if not self.num_pages:
                raise CapabilityError(
                    f"kv_cache_memory={self.num_bytes} bytes holds no page: one page of 16 positions takes "
                    f"{self.bytes_each} bytes in the target's and the drafter's caches; give more"
                )
        return self.num_pages
