"""Cached = uncached, a tree's rows = their paths alone, layer subsets and resume = the whole run, taps."""

import random

import pytest
import torch

from outdraft.cache.static import StaticCache
from outdraft.core.skip import Skip
from outdraft.core.target import after_attention
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import CausalContext, WatchedContext
from outdraft.nn.segment import Segment
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import TINY_ARCHITECTURES
from tests.helpers.tiny_families import TINY_FAMILIES, tiny_model

NAMES = TINY_ARCHITECTURES + TINY_FAMILIES


@pytest.fixture(scope="module", params=NAMES)
def model(request):
    return tiny_model(request.param, layers=4)


@pytest.fixture
def turn(model, request):
    """Which square of what is crossed this model takes: over a few models all pairs meet."""
    return NAMES.index(request.node.callspec.params["model"])


def ids_of(n, seed=0):
    return torch.randint(61, (n,), generator=torch.Generator().manual_seed(seed))


def cache_for(model):
    c = model.config
    return StaticCache(c.num_layers, c.num_kv_heads, c.head_dim, model.embedding.dtype, "cpu", c.max_len, poison=True)


def full(model, ids):
    return model(ids, torch.arange(len(ids)), CausalContext(1, len(ids)))


@pytest.mark.parametrize("place", range(4), ids=["one", "single", "mixed", "long"])
def test_cached_equals_uncached(model, turn, place):
    chunks, exact = ((40,), (1,) * 40, (17, 1, 5, 17), (70, 1, 9, 80))[place], (place + turn) % 2 == 0
    ids = ids_of(sum(chunks))
    cache = cache_for(model)
    cache.add(3)
    rows, base = [], 0
    for n in chunks:
        cache.reserve(3, n)
        context = CachedContext(cache, [Segment(seq=3, start=0, stop=n, base=base)], exact)
        rows.append(model(ids[base : base + n], torch.arange(base, base + n), context))
        cache.commit(3, range(n))
        cache.check()
        base += n
    torch.testing.assert_close(torch.cat(rows), full(model, ids), atol=1e-9, rtol=0)


@pytest.mark.parametrize("place", range(3), ids=["alone", "after 3", "after 30"])
def test_tree_rows_equal_their_paths_alone(model, turn, place):
    base, exact_rows = (0, 3, 30)[place], (0, 5, 12)[(place + turn) % 3]
    rng = random.Random(base)
    parents = tuple([-1, -1] + [rng.randrange(i) for i in range(2, 12)])
    segment = Segment(seq=0, start=0, stop=12, base=base, parents=parents, exact_rows=exact_rows)
    past, ids = ids_of(base, 1), ids_of(12)
    cache = cache_for(model)
    cache.add(0)
    if base:
        cache.reserve(0, base)
        model(past, torch.arange(base), CachedContext(cache, [Segment(seq=0, start=0, stop=base, base=0)]))
        cache.commit(0, range(base))
    cache.reserve(0, 12)
    positions = torch.tensor(segment.depths()) + base
    logits = model(ids, positions, CachedContext(cache, [segment]))
    for row, path in enumerate(segment.paths(0, 12)):
        alone = full(model, torch.cat([past, ids[list(path)]]))[-1]
        torch.testing.assert_close(logits[row], alone, atol=1e-9, rtol=0)


@pytest.mark.parametrize("exact_rows", [0, 4])
def test_a_mask_replaces_the_ancestors(exact_rows):
    model = tiny_model()
    ids = ids_of(4)
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool)
    cache = cache_for(model)
    cache.add(0)
    cache.reserve(0, 4)
    positions = torch.tensor([0, 1, 1, 2])
    segment = Segment(seq=0, start=0, stop=4, base=0, mask=mask, exact_rows=exact_rows)
    logits = model(ids, positions, CachedContext(cache, [segment]))
    torch.testing.assert_close(logits[3], full(model, ids[[0, 2, 3]])[-1], atol=1e-9, rtol=0)
    torch.testing.assert_close(logits[1], full(model, ids[[0, 1]])[-1], atol=1e-9, rtol=0)


def test_a_drafter_may_stack_tentative_rows_pass_after_pass(model):
    ids = ids_of(20)
    cache = cache_for(model)
    cache.add(0)
    cache.reserve(0, 15)
    model(ids[:15], torch.arange(15), CachedContext(cache, [Segment(seq=0, start=0, stop=15, base=0)]))
    cache.commit(0, range(15))
    for base in range(15, 20):
        cache.reserve(0, base - 15 + 1)
        context = CachedContext(cache, [Segment(seq=0, start=0, stop=1, base=base)])
        logits = model(ids[base : base + 1], torch.tensor([base]), context)
    torch.testing.assert_close(logits[0], full(model, ids)[-1], atol=1e-9, rtol=0)
    cache.commit(0, range(5))
    cache.check()
    assert cache.length(0) == 20


def test_resume_equals_the_whole_run_bit_for_bit(model):
    ids, positions = ids_of(9), torch.arange(9)
    h = model.embed(ids, positions)
    whole = model.run(h, positions, CausalContext(1, 9), taps=(0, 2, 3, 4))
    for stop in (1, 2, 3):
        first = model.run(h, positions, CausalContext(1, 9), stop=stop).hidden
        second = model.run(first, positions, CausalContext(1, 9), start=stop).hidden
        assert torch.equal(second, whole.hidden)
    assert torch.equal(whole.taps[0], h)
    assert torch.equal(whole.taps[2], model.run(h, positions, CausalContext(1, 9), stop=2).hidden)
    assert torch.equal(whole.taps[4], whole.hidden)
    assert sorted(whole.taps) == [0, 2, 3, 4]


def test_what_is_skipped_adds_nothing_and_writes_no_keys(model):
    ids, positions = ids_of(9), torch.arange(9)
    h = model.embed(ids, positions)
    skip = Skip(frozenset({1, 2}), frozenset({1, 3}))
    skipped = model.run(h, positions, CausalContext(1, 9), skip=skip).hidden
    by_hand = model.run(h, positions, CausalContext(1, 9), stop=1).hidden  # layer 1 is left out whole
    layer = model.layers[2]
    by_hand = by_hand + layer.fed_forward(by_hand, CausalContext(1, 9), True)
    layer = model.layers[3]
    turns = model.config.rope_at(3)
    rotation = None if turns is None else model.ropes[turns].at(positions, h.dtype)
    by_hand = by_hand + layer.attended(by_hand, rotation, CausalContext(1, 9))
    torch.testing.assert_close(skipped, by_hand, atol=1e-9, rtol=0)
    cache = cache_for(model)
    cache.add(0)
    cache.reserve(0, 9)
    context = CachedContext(cache, [Segment(seq=0, start=0, stop=9, base=0)])
    cached = model.run(h, positions, context, skip=skip).hidden
    torch.testing.assert_close(cached, skipped, atol=1e-9, rtol=0)
    written = [not bool(cache.read(0, layer, 9)[0].isnan().any()) for layer in range(4)]
    assert written == [True, False, False, True]


def test_taps_in_the_middle_of_layers_and_queries(model):
    ids, positions = ids_of(9), torch.arange(9)
    h = model.embed(ids, positions)
    context = WatchedContext(CausalContext(1, 9))
    out = model.run(h, positions, context, taps=(after_attention(0), 1, after_attention(2)))
    assert sorted(out.taps) == [after_attention(2), after_attention(0), 1]
    no_mlp = model.run(h, positions, CausalContext(1, 9), stop=1, skip=Skip(mlp=frozenset({0}))).hidden
    assert torch.equal(out.taps[after_attention(0)], no_mlp)
    assert not torch.equal(out.taps[1], no_mlp)
    config = model.config
    assert sorted(context.queries) == [0, 1, 2, 3]
    assert context.queries[2].shape == (9, config.num_heads, config.head_dim)


def test_a_skip_set_of_another_model_is_refused():
    Skip(mlp=frozenset({3})).check(4, "x.json")
    with pytest.raises(ConfigError, match=r"x.json names layer 4.*0 to 3"):
        Skip(mlp=frozenset({4})).check(4, "x.json")
    assert Skip(frozenset({0, 2}), frozenset({1, 2})).flags(range(4)) == bytes((1, 2, 3, 0))


def test_training_reaches_every_parameter():
    model = tiny_model("qwen3", dtype=torch.float32).requires_grad_(
        True
    )  # prepared for inference, trained all the same
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = full(model, ids_of(12))
    logits.float().square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.ne(0).any()), name


def test_gradients_flow_through_a_frozen_prepared_head():
    model = tiny_model(dtype=torch.float32)
    h = torch.randn(5, 32, requires_grad=True)
    model.logits(h).sum().backward()
    assert h.grad is not None and bool(h.grad.ne(0).any())


def test_greedy_text_of_tiny_models_wanders(model):
    ids = ids_of(5).tolist()
    while len(set(ids[5:])) <= 5:
        assert len(ids) < 45, ids
        ids.append(int(full(model, torch.tensor(ids))[-1].argmax()))
