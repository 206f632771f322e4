"""Pages of keys and values, `[layers, num_pages, Hkv, 16, d]`, and how many tables name each. Kwon et al. 2023,
https://arxiv.org/abs/2309.06180.

    owners of a page   0     free: empty, or *kept* with its text for later ones until room is wanted
                       1     its owner may write into it, unless it is published
                       2 ..  shared: an owner that wants to write takes a page of its own first

A page may be *published* with its text (`cache/prefix.py`): later texts that begin alike share it. Data in: numbers of
pages and texts; data out: numbers of pages. Which sequence has which page is the cache's (`cache/paged.py`).
"""

from collections import Counter
from collections.abc import Hashable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.cache.page_events import PageEvents
from outdraft.cache.pool import PagePool
from outdraft.cache.prefix import PrefixTree
from outdraft.cache.slots import Planes, RowFormat
from outdraft.core.cache import PAGE
from outdraft.options.errors import CacheFullError

_FIRST = 8  # pages of a store that grows


class PageStore:
    """The pages of one cache. `shape`: (layers, Hkv, d).

    `num_pages`: they are made at once and stay where they are. `pool`: the same, of a size that several caches share,
    made with the first page. Neither: their number doubles as need be. `poison` (tests): NaN wherever nothing stands.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        row_format: RowFormat,
        *,
        num_pages: int | None,
        pool: PagePool | None,
        poison: bool,
    ) -> None:
        self._shape, self._format, self._poison = shape, row_format, poison
        self._pool = pool
        if pool is not None:
            pool.join(self.page_bytes, self.forget)
        self._can_grow = num_pages is None and pool is None
        self._prefixes = PrefixTree()
        self._make(num_pages or 0)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, with the scales of its rows where they are stored as int8."""
        layers, heads, width = self._shape
        return 2 * layers * heads * PAGE * self._format.num_bytes(width)

    @property
    def num_pages(self) -> int | None:
        """How many there are; None where there will be as many as it takes."""
        self._settle()
        return None if self._can_grow else len(self._owners)

    @property
    def num_free(self) -> int:
        """Pages without owners, those kept for later texts among them."""
        self._settle()
        return len(self._free) + self._prefixes.num_kept

    @property
    def num_kept(self) -> int:
        """Pages without owners, kept for later texts."""
        return self._prefixes.num_kept

    def owners(self, page: int) -> int:
        """How many tables name the page."""
        return self._owners[page]

    def is_fixed(self, page: int) -> bool:
        """Whether what stands in the page must stay: several have it, or later texts may."""
        return self._owners[page] > 1 or self.is_published(page)

    def is_published(self, page: int) -> bool:
        return self._prefixes.holds(page)

    def take(self, count: int) -> list[int]:
        """Pages for a new owner; those kept for later texts go where no other is free, and then the store may grow.

        Raises `CacheFullError` if there are not so many.
        """
        self._settle()
        missing = count - len(self._free)
        if missing > self._prefixes.num_kept and not self._can_grow:
            raise CacheFullError(
                f"cache: {count} pages of {PAGE} positions are asked for, but {self.num_free} of the pool's "
                f"{len(self._owners)} are free: run fewer sequences at once, or give it more memory (kv_cache_memory)"
            )
        evicted = min(max(0, missing), self._prefixes.num_kept)
        self._free += self._emptied([self._prefixes.evict() for _ in range(evicted)])
        if count > len(self._free):
            self._grow(count - len(self._free))
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._owners[page] = 1
        return taken

    def share(self, pages: Seq[int]) -> None:
        """One more table names these pages."""
        for page in pages:
            self._prefixes.take(page)
            self._owners[page] += 1

    def give_back(self, pages: Seq[int]) -> None:
        """One table less names these pages."""
        for page in reversed(pages):
            self._owners[page] -= 1
            if self._owners[page]:
                continue
            if self._prefixes.holds(page):
                self._prefixes.keep(page)
            else:
                self._free += self._emptied([page])

    def find(self, salt: Hashable, tokens: Seq[int]) -> list[int]:
        return list(self._prefixes.find(salt, tokens))

    def publish(self, salt: Hashable, before: int | None, tokens: Seq[int], own: int) -> int:
        """`own` holds these 16 tokens behind page `before` (None: they begin the text); returns the page to name.

        That is another one, whose owner `own`'s becomes, if the same text was published already: one is enough.
        """
        page = self._prefixes.publish(salt, before, tokens, own)
        if page != own:
            self.share([page])
            self.give_back([own])
        return page

    def listen(self, events: PageEvents) -> None:
        """It hears which pages are published and evicted."""
        self._prefixes.listen(events)

    def forget(self) -> None:
        """Keep nothing for later texts."""
        self._free += self._emptied(self._prefixes.clear())

    def copy(self, to: int, source: int, rows: int) -> None:
        """The first rows of a page, in every layer, into another one."""
        first = slice(rows)
        self.planes.copy((slice(None), to, slice(None), first), self.planes, (slice(None), source, slice(None), first))

    def tensor(self, numbers: Seq[int]) -> Tensor:
        """Numbers of pages, or of places in them, as an index into the planes."""
        return torch.tensor(numbers, dtype=torch.int64, device=self._format.device)

    def check(self, named: Counter[int]) -> None:
        """Raise `AssertionError` if an invariant broke. `named`: how often each page stands in tables."""
        free = Counter(self._free + self._prefixes.kept)
        for page, count in enumerate(self._owners):
            if named[page] != count or free[page] != (count == 0):
                raise AssertionError(
                    f"cache: page {page} has {count} owners, stands {named[page]} times in tables and {free[page]} "
                    "times in the free list"
                )
        self._prefixes.check()
        if any(self._prefixes.holds(page) for page in self._free):
            raise AssertionError("cache: a free page is published")
        if self._poison and not self.planes.is_void((slice(None), self.tensor(self._free))):
            raise AssertionError("cache: a free page was written")

    def _settle(self) -> None:
        """Make the pages of a pool whose size could not be known before."""
        if self._pool is not None and not self._owners:
            self._make(self._pool.settle())

    def _make(self, num_pages: int) -> None:
        self.planes = self._allocate(num_pages)
        self._free = list(reversed(range(num_pages)))
        self._owners = [0] * num_pages  # how many tables name each page

    def _grow(self, missing: int) -> None:
        before = len(self._owners)
        after = max(_FIRST, 2 * before, before + missing)
        grown = self._allocate(after)
        old = (slice(None), slice(before))
        grown.copy(old, self.planes, old)
        self.planes = grown
        self._free[:0] = reversed(range(before, after))
        self._owners += [0] * (after - before)

    def _allocate(self, num_pages: int) -> Planes:
        layers, heads, width = self._shape
        return Planes.allocate((layers, num_pages, heads, PAGE), width, self._format, self._poison)

    def _emptied(self, pages: list[int]) -> list[int]:
        """Nothing stands in these pages any more."""
        if self._poison and pages:
            self.planes.poison((slice(None), self.tensor(pages)))
        return pages
