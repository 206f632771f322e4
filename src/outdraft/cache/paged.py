"""A table of pages for each sequence, over one store of pages for all. Kwon et al. 2023,
https://arxiv.org/abs/2309.06180.

    table of A   3 0 7          slots 0..15 in page 3, 16..31 in page 0, 32.. in page 7
    table of B   3 0 2          forked from A: full pages are shared, the last one is a copy

A page is taken when a slot of it is reserved and given back when nothing stands in it. Only pages full of committed
rows are ever shared; a cut into one copies it first. So no write ever meets a shared page. Who shares
what is counted in the store (`cache/page_store.py`), which also keeps pages for later texts that begin alike.
"""

from collections import Counter
from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.cache.page_store import PageStore
from outdraft.cache.pool import PagePool
from outdraft.cache.slots import Planes, SlotCache, Slots
from outdraft.core.cache import PAGE, KVMemory
from outdraft.options.errors import CapabilityError


@dataclass(slots=True, kw_only=True)
class Pages(Slots):
    """One sequence's page table."""

    pages: list[int] = field(default_factory=list)
    num_published: int = 0  # of them, from the first on


class PagedCache(SlotCache[Pages]):
    """`KVCache` over a pool of pages.

    `num_pages`: the pool is made at once and stays where it is, and a sequence that finds it empty gets a
    `CacheFullError`. `pool`: the same, of a size that several caches share, made with the first page. Neither: it
    doubles as need be.
    """

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        max_len: int,
        *,
        int8: bool = False,
        num_pages: int | None = None,
        pool: PagePool | None = None,
        poison: bool = False,
    ) -> None:
        super().__init__(num_layers, num_kv_heads, head_dim, dtype, device, max_len, int8=int8, poison=poison)
        if num_pages is not None and num_pages < 1:
            raise CapabilityError(f"cache: num_pages={num_pages} is out of range: it must be at least 1")
        self.store = PageStore(self.shape, self.format, num_pages=num_pages, pool=pool, poison=poison)

    @property
    def _planes(self) -> Planes:
        """Where the rows stand; another object once the store has grown."""
        return self.store.planes

    def pool(self) -> tuple[Tensor, Tensor]:
        """Keys and values of all pages, [L, num_pages, Hkv, 16, d]; valid until the pool grows."""
        return self._planes.keys, self._planes.values

    def pages(self, seq: int) -> list[int]:
        """The pages of a sequence, in the order of its slots; do not change it."""
        return self._entries[seq].pages

    @property
    def num_pages(self) -> int | None:
        return self.store.num_pages

    @property
    def num_free(self) -> int:
        return self.store.num_free

    def num_missing(self, seq: int, n: int) -> int:
        """How many pages more the sequence needs for n tentative rows."""
        entry = self._entries[seq]
        return max(0, -(-(entry.length + n) // PAGE) - len(entry.pages))

    def num_own(self, seq: int) -> int:
        """How many pages the sequence has alone: so many are there for others without it."""
        return sum(self.store.owners(page) == 1 for page in self._entries[seq].pages)

    def adopt(self, seq: int, salt: Hashable, tokens: Seq[int]) -> int:
        """Let an empty sequence begin with the published rows of this text; returns how many there are."""
        entry = self._entries[seq]
        assert not entry.length, "a sequence adopts rows before it has any"
        self._drop(entry, 0)
        entry.pages += self.store.find(salt, tokens)
        self.store.share(entry.pages)
        entry.num_published = len(entry.pages)
        entry.length = len(entry.pages) * PAGE
        return entry.length

    def publish(self, seq: int, salt: Hashable, tokens: Seq[int]) -> None:
        """The sequence's first rows are those of this text: let later ones adopt its full pages."""
        entry = self._entries[seq]
        for at in range(entry.num_published, min(len(tokens), entry.length) // PAGE):
            before = entry.pages[at - 1] if at else None
            tokens_of_page = tokens[at * PAGE : (at + 1) * PAGE]
            entry.pages[at] = self.store.publish(salt, before, tokens_of_page, entry.pages[at])
            entry.num_published = at + 1

    def num_published(self, seq: int) -> int:
        """How many of the sequence's first pages later texts may adopt."""
        return self._entries[seq].num_published

    def num_in_use(self, salt: Hashable, tokens: Seq[int]) -> int:
        """How many published pages of this text some sequence has now."""
        return sum(self.store.owners(page) > 0 for page in self.store.find(salt, tokens))

    def write(self, seq: int, layer: int, slot: int, k: Tensor, v: Tensor) -> None:
        page, place = self._places(self._entries[seq], range(slot, slot + k.shape[0]))
        self._planes.put((layer, page, slice(None), place), k, v)

    def read(self, seq: int, layer: int, stop: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of slots [start, stop), each [Hkv, stop - start, d]: copies."""
        before = start // PAGE
        table = self.store.tensor(self._entries[seq].pages[before : -(-stop // PAGE)])
        k, v = self._planes.get((layer, table))  # [pages, Hkv, 16, d]
        wanted = slice(start - before * PAGE, stop - before * PAGE)
        return k.transpose(0, 1).flatten(1, 2)[:, wanted], v.transpose(0, 1).flatten(1, 2)[:, wanted]

    def memory(self, seq: int) -> KVMemory:
        """The pool, and the sequence's table."""
        planes = self._planes
        return KVMemory(
            keys=planes.keys,
            values=planes.values,
            key_scales=planes.key_scales,
            value_scales=planes.value_scales,
            table=torch.tensor(self._entries[seq].pages, dtype=torch.int32),
        )

    def check(self) -> None:
        self.store.check(Counter(page for entry in self._entries.values() for page in entry.pages))
        for seq, entry in self._entries.items():
            if not 0 <= entry.length <= entry.stop <= min(len(entry.pages) * PAGE, self.max_len):
                raise AssertionError(
                    f"cache: sequence {seq} has length {entry.length}, {entry.reserved} reserved, "
                    f"{len(entry.pages)} pages"
                )
            if any(self.store.is_fixed(page) for page in entry.pages[entry.length // PAGE :]):
                raise AssertionError(f"cache: sequence {seq} shares a page that is not full of committed rows")
            if not all(self.store.is_published(page) for page in entry.pages[: entry.num_published]):
                raise AssertionError(f"cache: sequence {seq} counts pages as published that are not")
            if self.poison:
                self._check_marks(seq, entry)

    def _check_marks(self, seq: int, entry: Pages) -> None:
        everything = range(len(entry.pages) * PAGE)
        if self._planes.has_holes(self._rows(entry, everything[: entry.length])):
            raise AssertionError(f"cache: a committed row of sequence {seq} was never written")
        if not self._planes.is_void(self._rows(entry, everything[entry.stop :])):
            raise AssertionError(f"cache: sequence {seq} was written beyond its reserved rows")

    def _new(self) -> Pages:
        return Pages()

    def _make_room(self, entry: Pages, stop: int) -> None:
        entry.pages += self.store.take(-(-stop // PAGE) - len(entry.pages))

    def _move(self, entry: Pages, sources: list[int], target: int) -> None:
        to = self._rows(entry, range(target, target + len(sources)))
        self._planes.copy(to, self._planes, self._rows(entry, sources))

    def _drop(self, entry: Pages, length: int) -> None:
        whole, rest = divmod(length, PAGE)
        if rest and self.store.is_fixed(entry.pages[whole]):
            self._replace(entry, whole, rest)
        entry.num_published = min(entry.num_published, whole)
        entry.length, entry.reserved = length, 0
        stale = entry.pages[-(-length // PAGE) :]
        del entry.pages[-(-length // PAGE) :]
        self.store.give_back(stale)
        if self.poison and rest:
            self._planes.poison((slice(None), entry.pages[-1], slice(None), slice(rest, None)))

    def _copy(self, entry: Pages) -> Pages:
        whole, rest = divmod(entry.length, PAGE)
        copy = Pages(pages=entry.pages[:whole], num_published=min(entry.num_published, whole))
        last = self.store.take(1) if rest else []
        self.store.share(copy.pages)
        copy.pages += last
        if rest:
            self.store.copy(last[0], entry.pages[whole], rest)
        return copy

    def _release(self, entry: Pages) -> None:
        self.store.give_back(entry.pages)

    def _replace(self, entry: Pages, at: int, rows: int) -> None:
        """A page of its own for a sequence that will write into a shared one: its first rows are copied."""
        (own,) = self.store.take(1)
        shared = entry.pages[at]
        self.store.copy(own, shared, rows)
        entry.pages[at] = own
        self.store.give_back([shared])

    def _rows(self, entry: Pages, slots: Seq[int]) -> tuple[slice, Tensor, slice, Tensor]:
        """Index of these slots in every layer and head."""
        page, place = self._places(entry, slots)
        return slice(None), page, slice(None), place

    def _places(self, entry: Pages, slots: Seq[int]) -> tuple[Tensor, Tensor]:
        """(page, place in it) of each slot."""
        pages = [entry.pages[slot // PAGE] for slot in slots]
        return self.store.tensor(pages), self.store.tensor([slot % PAGE for slot in slots])
