"""Which cache an engine has: how its slots lie, and what a row is stored in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import torch

from outdraft.cache.hybrid import HybridCache
from outdraft.cache.paged import PagedCache
from outdraft.cache.pool import PagePool
from outdraft.cache.shelf import CacheShelf
from outdraft.cache.state import StateStore
from outdraft.cache.static import StaticCache
from outdraft.options.checked import check_fields
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.shown import shown
from outdraft.options.sizes import read_bytes

LAYOUTS = ("static", "paged")
DTYPES = ("auto", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """`layout`: "static", a block for each sequence; "paged", a pool for all. `dtype`: "auto", the model's; "int8"."""

    layout: str = "static"
    dtype: str = "auto"
    num_pages: int | None = None  # of a paged cache; None: as many as it takes
    memory: int | None = None  # bytes of the pool that a target's cache and those of its drafters share
    pool: PagePool | None = None  # that pool
    is_given: bool = True  # the user chose that size; otherwise it is what the machine had
    prefixes: bool | None = False  # a text takes over the rows of an earlier one that began alike; paged. None: open
    poison: bool = False  # tests: NaN where nothing stands
    shelf: CacheShelf | None = None  # where caches lie that several networks have, one after the other

    def __post_init__(self) -> None:
        check_fields(self)
        for name, value, known in (("kv_cache", self.layout, LAYOUTS), ("kv_cache_dtype", self.dtype, DTYPES)):
            if value not in known:
                raise ConfigError(f"{name}={shown(value)}: it is one of {', '.join(known)}")
        if self.layout != "paged" and (self.prefixes or self.memory is not None):
            raise ConfigError(
                f"kv_cache={self.layout!r} has a block for each sequence: enable_prefix_caching and kv_cache_memory "
                "are for kv_cache='paged'"
            )

    @classmethod
    def asked(cls, layout: str | None, dtype: str, *, prefixes: bool | None, memory: int | str | None) -> "CacheConfig":
        """As a user asks for it. A size, and rows that later texts take over, are for a pool of pages.

        `prefixes`: None keeps rows for later texts where pages cost nothing, but not in blocks that were asked for.
        """
        size = None if memory is None else read_bytes(memory, "kv_cache_memory")
        chosen = layout or ("paged" if prefixes or size is not None else "static")
        kept = False if prefixes is None and layout == "static" else prefixes
        return cls(layout=chosen, dtype=dtype, prefixes=kept, memory=size)

    @property
    def variant(self) -> str:
        """The name of its distribution, where that is not the model's own."""
        return "kv-int8" if self.dtype == "int8" else ""

    @property
    def of_drafters(self) -> "CacheConfig":
        """What drafters that keep rows of their own have: the same, in their own number format."""
        return replace(self, dtype="auto", poison=False)

    def with_own_pool(self) -> "CacheConfig":
        """For one target and its drafters: with a size it is a pool that they alone share."""
        if self.memory is None and self.num_pages is None:
            return self
        return replace(self, pool=PagePool(num_bytes=self.memory, num_pages=self.num_pages))

    def build(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        max_len: int,
    ) -> StaticCache | PagedCache:
        """An empty cache for a model of this shape, whose activations are `dtype`."""
        shape = (num_layers, num_kv_heads, head_dim)
        if self.shelf is not None:
            alone, sizes = replace(self, shelf=None), (num_layers, num_kv_heads, head_dim, dtype, max_len)
            return self.shelf.give(sizes, lambda: alone.build(*shape, dtype, device, max_len))
        int8 = self.dtype == "int8"
        if self.layout == "static":
            return StaticCache(*shape, dtype, device, max_len, int8=int8, poison=self.poison)
        return PagedCache(*shape, dtype, device, max_len, int8=int8, pool=self.pool, poison=self.poison)

    def build_with(
        self,
        states: Mapping[int, tuple[int, ...]],
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        max_len: int,
    ) -> StaticCache | PagedCache | HybridCache:
        """An empty cache for a model of which the layers in `states` keep a state of that shape.

        Raises `CapabilityError` for prefix caching over states.
        """
        rows = self.build(num_layers - len(states), num_kv_heads, head_dim, dtype, device, max_len)
        if not states:
            return rows
        if self.prefixes:
            raise CapabilityError(
                f"enable_prefix_caching: layers {sorted(states)} of this model are recurrent, and a text cannot begin "
                "from the keys and values of an earlier one alone: leave prefix caching out"
            )
        size, kind = sum(prod(shape) for shape in states.values()), torch.promote_types(dtype, torch.float32)
        empty = torch.zeros(size, dtype=kind, device=device)
        return HybridCache(rows, StateStore(empty, pool=self.pool, poison=self.poison), states)
