"""A native pass that leaves sublayers out: what PyTorch computes, the bits of any batch, chains, middles, queries."""

import copy

import pytest
import torch

from kernels.test_guesser import TEXTS, draw_of, sequence
from kernels.test_stack import Feeder, make, new_cache
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import after_attention
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.kernels.library import library
from outdraft.models.networks.guess import guess_with
from outdraft.models.networks.native import NativeDecoder
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import CausalContext, WatchedContext
from outdraft.nn.segment import Segment

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")
SKIPS = [
    Skip(frozenset({0}), frozenset()),
    Skip(frozenset(), frozenset({1})),
    Skip(frozenset({1}), frozenset({0, 1})),
    Skip(frozenset({0, 1}), frozenset({0, 1})),
]
IDS = torch.randint(0, 128, (23,), generator=torch.Generator().manual_seed(2))
PLACES = torch.arange(23)


def native_run(decoder, ids, pieces=None, **options):
    """States [n, D] of a pass over an empty cache, or of several."""
    cache, outs, base = new_cache(decoder), [], 0
    cache.add(0)
    for part in ids.split(pieces or (len(ids),)):
        n = len(part)
        cache.reserve(0, n)
        places = torch.arange(base, base + n)
        context = CachedContext(cache, [Segment(seq=0, start=0, stop=n, base=base)])
        outs.append(decoder.run(decoder.embed(part, places), places, context, **options).hidden)
        cache.commit(0, range(n))
        base += n
    return torch.cat(outs)


@pytest.mark.parametrize("shape", ["grouped", "mixed", "qwen3"])
@pytest.mark.parametrize("skip", SKIPS, ids=range(4))
def test_a_skipped_pass_is_pytorchs(shape, skip):
    decoder = make(shape)
    wide = copy.deepcopy(decoder).float()
    context = CausalContext(1, len(IDS))
    expected = wide.run(wide.embed(IDS, PLACES), PLACES, context, skip=skip).hidden
    rough = decoder.run(decoder.embed(IDS, PLACES), PLACES, context, skip=skip).hidden.float()
    native = NativeDecoder(decoder)
    got = native_run(native, IDS, skip=skip)
    tolerance = float((rough - expected).abs().mean())  # what bfloat16 in PyTorch is off by
    assert float((got - expected).abs().mean()) <= tolerance * (1 if decoder.config.quant is None else 4)
    assert torch.equal(native_run(native, IDS, (1, 7, 15), skip=skip), got)
    whole = native_run(native, IDS)
    assert not torch.allclose(got, whole, atol=0.01)
    assert torch.equal(native_run(native, IDS, skip=NO_SKIP), whole)


def test_a_skipped_attention_writes_no_keys():
    native = NativeDecoder(make("llama"))
    cache = new_cache(native)
    cache.add(0)
    cache.reserve(0, 23)
    context = CachedContext(cache, [Segment(seq=0, start=0, stop=23, base=0)])
    native.run(native.embed(IDS, PLACES), PLACES, context, skip=Skip(attention=frozenset({1})))
    assert not cache.read(0, 0, 23)[0].isnan().any() and cache.read(0, 1, 23)[0].isnan().all()


def test_middles_and_queries():
    decoder = make("grouped")
    native, wide = NativeDecoder(decoder), copy.deepcopy(decoder).float()
    middle = after_attention(1)
    kept = []
    for network, make_context in ((native, lambda: _context(native)), (wide, lambda: CausalContext(1, 23))):
        context = WatchedContext(make_context())
        out = network.run(network.embed(IDS, PLACES), PLACES, context, taps=(0, 1, middle))
        kept.append((out.taps[middle], context.queries[0], context.queries[1]))
        assert sorted(out.taps) == [middle, 0, 1] and sorted(context.queries) == [0, 1]
    for ours, theirs in zip(*kept, strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().mean()) < 0.02 * float(theirs.abs().mean())
    assert torch.equal(kept[0][0], native_run(native, IDS, skip=Skip(mlp=frozenset({1}))))


def _context(native):
    cache = new_cache(native)
    cache.add(0)
    cache.reserve(0, 23)
    return CachedContext(cache, [Segment(seq=0, start=0, stop=23, base=0)])


@pytest.mark.parametrize("skip", SKIPS[:3], ids=range(3))
@pytest.mark.parametrize("drawn", [False, True])
def test_a_skipped_chain_is_that_of_single_passes(skip, drawn):
    native = NativeDecoder(make("grouped"))
    config = native.config
    shape = (config.num_layers, config.num_kv_heads, config.head_dim)
    depths, seqs = (4, 2, 5), [sequence(text) for text in TEXTS]

    def cache_of(texts, rooms):
        cache = DraftCache(*shape, torch.bfloat16, torch.device("cpu"), 256, exact=True)
        for seq in range(len(texts)):
            cache.add(seq)
        context = cache.extend(range(len(texts)), [len(text) for text in texts])
        cache.extend(range(len(texts)), rooms)
        return context

    draws = [draw_of(seq, depth) if drawn else None for seq, depth in zip(seqs, depths, strict=True)]
    guesser, places = guess_with(native), [i for text in TEXTS for i in range(len(text))]
    found = guesser.chain(
        [token for text in TEXTS for token in text], places, cache_of(TEXTS, depths), depths, draws, skip=skip
    )
    for seq, depth, path, distributions in zip(seqs, depths, found.tokens, found.distributions, strict=True):
        text = list(seq.tokens)
        for step in range(depth):
            context = cache_of([text], [1])
            _, logits = guesser.feed(text, range(len(text)), context, [len(text) - 1], skip=skip)
            if drawn:
                assert seq.draft_coins(seq).draw(distributions[step], step, step) == [path[step]]
                torch.testing.assert_close(distributions[step], logits[0].softmax(-1), atol=1e-6, rtol=1e-5)
            else:
                assert path[step] == int(logits.argmax())
            text.append(path[step])


def test_single_rows_of_a_skipped_net_are_those_of_a_feeder():
    """A skip of nothing is the plain pass."""
    native = NativeDecoder(make("llama"))
    assert torch.equal(native.logits(native_run(native, IDS, (9, 14), skip=Skip())), Feeder(native).feed(IDS))
