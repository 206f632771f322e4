"""Attention with sinks: one more score a head, which takes its share of the softmax and brings no value."""

import pytest
import torch

from outdraft.cache.static import StaticCache
from outdraft.nn.branches import BranchContext, Branches
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import CausalContext, WatchedContext
from outdraft.nn.segment import Segment

H, HKV, D, N = 4, 2, 8, 6
DRAWN = torch.Generator().manual_seed(2)
Q = torch.randn(N, H, D, generator=DRAWN)
K, V = (torch.randn(N, HKV, D, generator=DRAWN) for _ in range(2))
SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0])
TREE = (-1, 0, 0, 1, 2, 2)


def by_hand(seen, sinks=SINKS, cap=None, window=None):
    """softmax over the seen rows' scores and the sink, of which only the rows have values: [N, H * D]."""
    out = torch.zeros(N, H, D)
    for row in range(N):
        rows = seen[row] if window is None else seen[row][-window:]
        for head in range(H):
            scores = K[rows, head // 2] @ Q[row, head] * 0.3
            scores = scores if cap is None else torch.tanh(scores / cap) * cap
            shares = torch.cat((scores, sinks[head : head + 1])).softmax(0)[:-1]
            out[row, head] = shares @ V[rows, head // 2]
    return out.flatten(1)


CHAIN = [list(range(i + 1)) for i in range(N)]
PATHS = [list(path) for path in Segment(seq=0, start=0, stop=N, base=0, parents=TREE).paths(0, N)]


def make_cache():
    cache = StaticCache(1, HKV, D, torch.float32, "cpu", 16)
    cache.add(0)
    cache.reserve(0, N)
    return cache


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("window", [None, 2])
def test_causal(window, cap):
    out = CausalContext(1, N).attend(0, Q, K, V, window=window, scale=0.3, cap=cap, sinks=SINKS)
    assert torch.allclose(out, by_hand(CHAIN, cap=cap, window=window), atol=1e-6)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("parents", [None, TREE])
def test_over_a_cache(parents, exact):
    context = CachedContext(make_cache(), [Segment(seq=0, start=0, stop=N, base=0, parents=parents)], exact)
    out = context.attend(0, Q, K, V, window=None, scale=0.3, sinks=SINKS)
    assert torch.allclose(out, by_hand(CHAIN if parents is None else PATHS), atol=1e-6)


def test_level_by_level():
    cache, pieces = make_cache(), []
    for first, stop in ((0, 1), (1, 3), (3, 6)):
        part = Branches(seq=0, start=0, text=0, first=first, above=[path[:-1] for path in PATHS[first:stop]])
        own = slice(first, stop)
        pieces.append(
            BranchContext(cache, [part]).attend(0, Q[own], K[own], V[own], window=None, scale=0.3, sinks=SINKS)
        )
    assert torch.allclose(torch.cat(pieces), by_hand(PATHS), atol=1e-6)


def test_a_sink_far_below_changes_nothing():
    far = torch.full((H,), -1e4)
    plain = CausalContext(1, N).attend(0, Q, K, V, window=None, scale=0.3)
    assert torch.allclose(CausalContext(1, N).attend(0, Q, K, V, window=None, scale=0.3, sinks=far), plain, atol=1e-6)
    assert not torch.allclose(by_hand(CHAIN), plain, atol=1e-2)


def test_a_watched_context_hands_sinks_on_and_keeps_the_queries():
    watched = WatchedContext(CausalContext(1, N))
    out = watched.attend(5, Q, K, V, window=None, scale=0.3, sinks=SINKS)
    assert torch.equal(out, CausalContext(1, N).attend(5, Q, K, V, window=None, scale=0.3, sinks=SINKS))
    assert torch.equal(watched.queries[5], Q)
