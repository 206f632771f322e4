"""Rows and states of a text together, against a naive model: every text's list of tokens."""

import pytest
import torch

from outdraft.cache.config import CacheConfig
from outdraft.cache.hybrid import HybridCache
from outdraft.cache.pool import PagePool
from outdraft.cache.state import StateStore
from outdraft.options.errors import CacheFullError, CapabilityError

SHAPES = {0: (2, 3), 2: (4,)}  # layer 1 of three has keys and values


def cache_of(layout, pool=None):
    config = CacheConfig(layout=layout, pool=pool, poison=True)
    rows = config.build(1, 1, 2, torch.float32, torch.device("cpu"), 64)
    return HybridCache(rows, StateStore(torch.zeros(10), pool=pool, poison=True), SHAPES)


def mark(tokens, layer):
    return torch.full(SHAPES[layer], float(hash((*tokens, layer)) % 1000))


def write(cache, seq, text, tokens, parents):
    """A pass over a tree of tokens: node i reads its parent's state, which must be that of its own path."""
    cache.reserve(seq, len(tokens))
    paths = []
    for row, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        above = paths[parent] if parent >= 0 else text
        for layer in SHAPES:
            wanted = mark(above, layer) if above else torch.zeros(SHAPES[layer])
            assert torch.equal(cache.before(seq, layer, parent), wanted)
            cache.leave(seq, layer, row, mark([*above, token], layer))
        cache.write(
            seq, 1, cache.length(seq) + row, torch.full((1, 1, 2), 1.0 * token), torch.full((1, 1, 2), -1.0 * token)
        )
        paths.append([*above, token])
    return paths


def holds(cache, seq, text):
    assert cache.length(seq) == len(text)
    assert cache.read(seq, 1, len(text))[0][0, :, 0].tolist() == text
    assert all(torch.equal(cache.before(seq, layer, -1), mark(text, layer)) for layer in SHAPES)
    cache.check()


@pytest.mark.parametrize("layout", ["static", "paged"])
def test_trees_forks_and_ends(layout):
    cache = cache_of(layout)
    texts: dict[int, list[int]] = {}
    for seq in range(11):  # more than the store begins with
        cache.add(seq)
        write(cache, seq, [], [seq + 1], [-1])
        cache.commit(seq, [0])
        texts[seq] = [seq + 1]
    for keep in ([0, 2, 3], [0], [0, 1], []):
        for seq, text in texts.items():
            paths = write(cache, seq, text, [7, 8, 9, 5], [-1, 0, 0, 2])
            cache.commit(seq, keep)
            texts[seq] = paths[keep[-1]] if keep else text
            holds(cache, seq, texts[seq])
    cache.fork(3, 20)
    texts[20] = write(cache, 20, texts[3], [1], [-1])[0]
    cache.commit(20, [0])
    holds(cache, 20, texts[20])
    holds(cache, 3, texts[3])
    for seq in list(texts):
        write(cache, seq, texts[seq], [4, 4], [-1, 0])  # and not committed
        cache.free(seq)
        cache.check()
    assert not cache.states.ids() and not cache.ids()


def test_a_pass_that_came_to_nothing():
    cache = cache_of("static")
    cache.add(0)
    write(cache, 0, [], [1, 2], [-1, 0])
    cache.truncate(0, 0)
    cache.check()
    write(cache, 0, [], [3], [-1])
    with pytest.raises(CapabilityError, match="commits row 1, and no layer left a state"):
        cache.commit(0, [0, 1])
    cache.commit(0, [0])
    holds(cache, 0, [3])
    with pytest.raises(CapabilityError, match=r"truncate to 0, .* cannot go back"):
        cache.truncate(0, 0)


def test_neither_or_both_where_room_is_short():
    cache = cache_of("paged", PagePool(num_pages=2))
    cache.add(0)
    cache.add(1)
    for refused in (lambda: cache.add(2), lambda: cache.fork(0, 2)):
        with pytest.raises(CacheFullError):
            refused()
        cache.check()


def test_what_is_no_row_is_refused():
    cache = cache_of("static")
    cache.add(0)
    with pytest.raises(CapabilityError, match="layer 2 is recurrent"):
        cache.read(0, 2, 0)
    with pytest.raises(CapabilityError, match=r"layers \[0, 2\] keep states"):
        cache.memory(0)


def leaves_states(cache):
    cache._left[0] = {0: torch.zeros(10)}


PLANTED = {
    "holds states after rows": leaves_states,
    "have only rows, or a state": lambda cache: cache.states.free(0),
    "has 0 rows, and a state after 1": lambda cache: cache.states.advance(0, 1, torch.zeros(10)),
    "not once": lambda cache: cache.states._take(),
    "a free slot was written": lambda cache: cache.states._states.fill_(0),
}


@pytest.mark.parametrize("found", PLANTED)
def test_a_planted_leak_is_found(found):
    cache = cache_of("static")
    cache.add(0)
    cache.check()
    PLANTED[found](cache)
    with pytest.raises(AssertionError, match=found):
        cache.check()
