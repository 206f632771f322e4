"""What only a pool of pages does: sharing, copying before a write, running out."""

import pytest
import torch

from outdraft.cache.paged import PagedCache
from outdraft.options.errors import CapabilityError


def new_cache(num_pages: int | None = None) -> PagedCache:
    return PagedCache(2, 3, 4, torch.float32, "cpu", 300, num_pages=num_pages, poison=True)


def fill(cache: PagedCache, seq: int, count: int, value: float) -> None:
    start = cache.length(seq)
    cache.reserve(seq, count)
    rows = torch.full((count, 3, 4), value)
    for layer in range(2):
        cache.write(seq, layer, start, rows, -rows)
    cache.commit(seq, range(count))


def test_a_fork_shares_full_pages_and_nothing_else():
    cache = new_cache(6)
    cache.add(0)
    fill(cache, 0, 40, 1.0)
    cache.fork(0, 1)
    assert cache.pages(1)[:2] == cache.pages(0)[:2] and cache.pages(1)[2] != cache.pages(0)[2]
    assert cache.num_free == 2
    fill(cache, 1, 20, 2.0)
    assert cache.read(0, 0, 40)[0].eq(1).all() and cache.read(1, 0, 60)[0][:, 40:].eq(2).all()
    cache.check()
    cache.free(0)
    assert cache.num_free == 2 and cache.read(1, 1, 40)[1].eq(-1).all()
    cache.free(1)
    assert cache.num_free == 6
    cache.check()


def test_who_cuts_into_a_shared_page_gets_a_copy():
    cache = new_cache()
    cache.add(0)
    fill(cache, 0, 32, 1.0)
    cache.fork(0, 1)
    assert cache.pages(0) == cache.pages(1)
    cache.truncate(1, 20)
    assert cache.pages(0)[0] == cache.pages(1)[0] and cache.pages(0)[1] != cache.pages(1)[1]
    fill(cache, 1, 12, 3.0)
    assert cache.read(0, 0, 32)[0].eq(1).all()
    assert cache.read(1, 0, 32)[0][0, :, 0].tolist() == [1.0] * 20 + [3.0] * 12
    cache.check()


def test_an_empty_pool_says_so_and_loses_nothing():
    cache = new_cache(3)
    cache.add(0)
    fill(cache, 0, 33, 1.0)
    cache.add(1)
    with pytest.raises(CapabilityError, match=r"1 pages of 16 positions are asked for, but 0 of the pool's 3 are free"):
        cache.reserve(1, 1)
    with pytest.raises(CapabilityError, match="kv_cache_memory"):
        cache.fork(0, 2)
    cache.check()
    assert cache.read(0, 1, 33)[0].eq(1).all()
    cache.free(0)
    cache.reserve(1, 48)
    with pytest.raises(CapabilityError, match="num_pages=0"):
        new_cache(0)


def test_a_stated_pool_stays_where_it_is():
    cache = new_cache(8)
    before = [plane.data_ptr() for plane in cache.pool()]
    cache.add(0)
    fill(cache, 0, 128, 1.0)
    assert [plane.data_ptr() for plane in cache.pool()] == before
    assert [plane.shape for plane in cache.pool()] == [(2, 8, 3, 16, 4)] * 2


def test_check_finds_a_lost_and_a_stolen_page():
    cache = new_cache(4)
    cache.add(0)
    fill(cache, 0, 20, 1.0)
    cache.pages(0).pop()
    with pytest.raises(AssertionError, match="stands 0 times in tables and 0 times in the free list"):
        cache.check()
    cache = new_cache(4)
    cache.add(0)
    cache.add(1)
    fill(cache, 0, 20, 1.0)
    fill(cache, 1, 5, 1.0)
    cache.pages(1)[0] = cache.pages(0)[0]
    with pytest.raises(AssertionError, match="owners"):
        cache.check()
