"""Guesses in one native call: the same bits as step by step, the distribution that is handed back, tokens that follow
it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kernels.pytorch_only import pytorch_only
from kernels.test_stack import Feeder, make
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.kernels.decoder.chains import Draw, guess_chains
from outdraft.kernels.decoder.distributions import Warp
from outdraft.kernels.decoder.entrance import ResidualBlock
from outdraft.kernels.decoder.guesser import Guesser, GuessRows
from outdraft.kernels.decoder.matrix import Weight
from outdraft.kernels.decoder.stack import Stack, StackShape
from outdraft.kernels.library import library
from outdraft.models.networks.guess import guess_with
from outdraft.models.networks.native import NativeDecoder, spans_of
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import KeyedDraftCoins, draft_coins
from outdraft.sampling.warp import warp_nodes, warp_of
from outdraft.testing.statistics import judge_counts

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")
TEXTS = ([3, 1, 4, 1, 5, 9, 2, 6], [7, 8], [5])
WARPS = [
    {},
    {"temperature": 0.7},
    {"top_k": 5},
    {"top_p": 0.6},
    {"min_p": 0.1},
    {"top_k": 9, "top_p": 0.8, "min_p": 0.02},
]


@pytest.fixture(scope="module", params=["grouped", "odd vocabulary", "int8"])
def decoder(request):
    return NativeDecoder(make(request.param))


def run(decoder, depths, draws, texts=TEXTS, *, first=0, **options):
    """Chains from fresh caches; `first`: the texts' first position."""
    config = decoder.config
    shape = (config.num_layers, config.num_kv_heads, config.head_dim)
    cache = DraftCache(*shape, torch.bfloat16, torch.device("cpu"), 256, exact=True)
    for seq in range(len(texts)):
        cache.add(seq)
    context = cache.extend(range(len(texts)), [len(text) for text in texts])
    cache.extend(range(len(texts)), depths)
    places = [first + i for text in texts for i in range(len(text))]
    tokens = [token for text in texts for token in text]
    return guess_with(decoder).chain(tokens, places, context, depths, draws, **options)


def step_by_step(decoder, text, depth, choose):
    """The same chain by single passes; `choose(step, logits)`."""
    feeder, path = Feeder(decoder), []
    logits = feeder.feed(torch.tensor(text))
    for step in range(depth):
        path.append(choose(step, logits[-1:]))
        logits = feeder.feed(torch.tensor(path[-1:]))
    return path


def sequence(text, **params):
    request = Request(prompt_token_ids=tuple(text), params=SamplingParams(**{"temperature": 1.0, **params}))
    return Sequence(
        id=0,
        request=request,
        tokens=list(text),
        prompt_len=len(text),
        max_len=256,
        seed=11,
        coupled=False,
        eos_token_ids=frozenset(),
        coins=verifier_coins,
        draft_coins=draft_coins,
    )


def draw_of(seq, depth):
    return Draw(keys=seq.draft_coins(seq).chain_keys(depth), warp=warp_of(seq.request.params))


@pytest.mark.parametrize("depths", [(4, 4, 4), (1, 5, 3), (3, 1, 7)])
def test_greedy_chains_are_those_of_single_passes(decoder, depths):
    found = run(decoder, depths, [None] * 3)
    for text, depth, path in zip(TEXTS, depths, found.tokens, strict=True):
        assert path == step_by_step(decoder, text, depth, lambda _, logits: int(logits.argmax()))
    assert found.distributions == [None] * 3 and found.states is None


@pytest.mark.parametrize("warp", WARPS)
def test_drawn_chains_follow_the_warped_distribution(decoder, warp):
    seqs, depths = [sequence(text, **warp) for text in TEXTS], (6, 2, 4)
    found = run(decoder, depths, [draw_of(seq, depth) for seq, depth in zip(seqs, depths, strict=True)])
    for seq, depth, path, distributions in zip(seqs, depths, found.tokens, found.distributions, strict=True):
        assert distributions.shape == (depth + 1, decoder.config.vocab_size) and not distributions[-1].any()

        def check(step, logits, seq=seq, path=path, distributions=distributions):
            with pytorch_only():
                expected = warp_nodes(seq, logits)[0]
                torch.testing.assert_close(distributions[step], expected, atol=1e-6, rtol=1e-5)
                assert seq.draft_coins(seq).draw(distributions[step], step, step) == [
                    path[step]
                ]  # what PyTorch draws from it
            return path[step]

        step_by_step(decoder, seq.tokens, depth, check)


def test_a_batch_does_not_change_a_chain(decoder):
    seqs, depths = [sequence(text) for text in TEXTS], (2, 5, 3)
    draws = [draw_of(seqs[0], 2), None, draw_of(seqs[2], 3)]
    together = run(decoder, depths, draws, feed_last=True, states=True)
    for i, (text, depth, draw) in enumerate(zip(TEXTS, depths, draws, strict=True)):
        alone = run(decoder, [depth], [draw], [text], feed_last=True, states=True)
        assert alone.tokens[0] == together.tokens[i]
        assert torch.equal(alone.states[0], together.states[i, : depth + 1])
        assert draw is None or torch.equal(alone.distributions[0], together.distributions[i])


def test_positions_beyond_the_rotary_table_have_rows_of_their_own(decoder):
    """A table begins short; a text that is turned by a constant has the same scores but for rounding."""
    near, far = (run(decoder, [3], [None], TEXTS[:1], first=first).tokens for first in (0, 5000))
    assert near == far


def test_a_state_that_is_not_finite_is_reported(decoder, monkeypatch):
    broken = decoder.embedding.clone()
    broken[5] = float("nan")
    monkeypatch.setattr(decoder, "table", broken)
    assert run(decoder, [3], [None], [[5]]).tokens == [[-1, -1, -1]]
    assert run(decoder, [2], [draw_of(sequence([5]), 2)], [[5]]).tokens == [[-1, -1]]


@pytest.mark.parametrize("bias", [0.0, 0.15])
def test_draws_have_the_distribution(bias):
    """Chi-square of many draws of one token; the check must see a distribution that is a little off."""
    decoder = NativeDecoder(make("grouped"))
    warp = Warp(temperature=0.8, top_k=12)
    keys = [KeyedDraftCoins(seed, 7, False).chain_keys(1) for seed in range(6000)]
    draws = [Draw(keys=key, warp=warp) for key in keys]
    found = run(decoder, [1] * 100, draws[:100], [[3, 1]] * 100)
    distribution = found.distributions[0][0].double()
    counts = torch.zeros(1, len(distribution), dtype=torch.float64)
    for start in range(0, len(draws), 100):
        for path in run(decoder, [1] * 100, draws[start : start + 100], [[3, 1]] * 100).tokens:
            counts[0, path[0]] += 1
    told = distribution + bias * distribution.max() * (distribution > 0)
    judged = judge_counts(counts, told[None] / told.sum(), len(draws))
    assert judged.passes == (bias == 0)


def test_two_threads_may_use_one_decoder():
    decoder = NativeDecoder(make("grouped"))

    def chain(seed):
        return run(decoder, [40], [None], [[3, 1, 4 + seed]]).tokens

    alone = [chain(0), chain(1)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            assert list(pool.map(chain, range(2))) == alone


@pytest.mark.parametrize("drawn", [False, True])
def test_cutoffs_tell_how_sure_and_end_chains_that_all_fell(decoder, drawn):
    seqs, depths = [sequence(text) for text in TEXTS], (6, 2, 5)
    draws = [draw_of(seq, depth) if drawn else None for seq, depth in zip(seqs, depths, strict=True)]
    plain = run(decoder, depths, draws)
    told = run(decoder, depths, draws, cutoffs=[(0.0, 0.0)] * 3)
    assert plain.surenesses is None and told.tokens == plain.tokens
    for text, path, sure, distribution in zip(TEXTS, told.tokens, told.surenesses, told.distributions, strict=True):
        wanted = []

        def record(step, logits, path=path, distribution=distribution, wanted=wanted):
            raw = torch.softmax(logits[0].float(), -1)
            wanted.append(float((distribution[step] if drawn else raw)[path[step]]))
            return path[step]

        step_by_step(decoder, text, len(path), record)
        assert sure == pytest.approx(wanted, rel=1e-5)
    assert run(decoder, depths, draws, cutoffs=[(1.1, 0.0)] * 3).tokens == [path[:1] for path in plain.tokens]
    for cutoffs in ([(0.0, 0.0), (1.1, 0.0), (0.0, 2.0)], [(0.0, 0.0), (0.0, 0.0), (1.1, 0.0)]):
        assert run(decoder, depths, draws, cutoffs=cutoffs).tokens == plain.tokens  # one goes on, so all are fed
    last = run(decoder, [4], draws[:1], TEXTS[:1], cutoffs=[(1.1, 0.0)], feed_last=True, states=True)
    free = run(decoder, [4], draws[:1], TEXTS[:1], feed_last=True, states=True)
    assert len(last.tokens[0]) == 1 and torch.equal(last.states[0, :2], free.states[0, :2])


def one_cache(decoder):
    config = decoder.config
    shape = (config.num_layers, config.num_kv_heads, config.head_dim)
    cache = DraftCache(*shape, torch.bfloat16, torch.device("cpu"), 256, exact=True)
    cache.add(0)
    return cache


def test_a_deep_tree_fed_level_by_level_is_the_chain(decoder):
    """A path may be far longer than the pass has rows."""
    path = [(7 * i + 3) % 100 for i in range(220)]
    cache, guesser = one_cache(decoder), guess_with(decoder)
    for i, token in enumerate(path):
        _, logits = guesser.feed([token], [i], cache.branch([0], [[list(range(i))]]), [0])
    _, wanted = guesser.feed(path, range(len(path)), one_cache(decoder).extend([0], [len(path)]), [len(path) - 1])
    assert torch.equal(logits, wanted)


def test_a_row_may_be_wanted_more_than_once(decoder):
    up, down = (Weight(bits=16, values=torch.ones(64, 64, dtype=torch.bfloat16)) for _ in range(2))
    guesser = guess_with(decoder, exit=ResidualBlock(up=up, down=down, norm=torch.ones(64)), eps=1e-5)
    states, logits = guesser.feed([3, 1], [0, 1], one_cache(decoder).extend([0], [2]), [1] * 40)
    assert (states == states[0]).all() and (logits == logits[0]).all()


def test_an_exit_takes_activations_of_any_size():
    """SiLU of large numbers is the number itself, or nothing."""
    decoder = NativeDecoder(make("grouped"))
    signs = torch.tensor([200.0, -200.0]).repeat(32)
    up = Weight(bits=16, values=signs[:, None].repeat(1, 64).bfloat16())
    down = Weight(bits=16, values=(torch.eye(64) / 64).bfloat16())
    norm = torch.zeros(64)
    norm[0] = 1  # what goes up is the first channel of the normed state, times 200 or -200
    rows = (range(4), one_cache(decoder).extend([0], [4]), range(4))
    guesser = guess_with(decoder, exit=ResidualBlock(up=up, down=down, norm=norm), eps=1e-5)
    states, logits = guesser.feed([3, 1, 4, 5], *rows)
    normed = (states[:, :1] / states.square().mean(-1, keepdim=True).add(1e-5).sqrt()).bfloat16().float()
    raised = states + torch.nn.functional.silu(signs * normed).bfloat16().float() / 64
    torch.testing.assert_close(logits, decoder.logits(raised), atol=1e-3, rtol=1e-3)
    assert float(normed.abs().max()) > 0.5


@pytest.mark.parametrize("feed_last", [False, True])
def test_a_chain_that_fell_below_its_cutoff_costs_no_pass_more(decoder, feed_last):
    """The last token's row is written only for who asks."""
    cache = one_cache(decoder)
    context = cache.extend([0], [3])
    cache.extend([0], [5])
    keys = cache.rows.memory(0).keys  # [L, pages, Hkv, 16, d]
    keys.fill_(9)
    guess_with(decoder).chain([3, 1, 4], range(3), context, [4], [None], cutoffs=[(1.1, 0.0)], feed_last=feed_last)
    written = (keys[:, 0] != 9).any(-1).flatten(0, 1)  # [L * Hkv, 16]
    assert (written == (torch.arange(16) < 3 + feed_last)).all()


def test_layers_that_are_not_there_are_an_error(decoder):
    with pytest.raises(RuntimeError, match="layers that are not there"):
        guess_with(decoder, num_layers=3)


@pytest.mark.parametrize("missing", ["layer", "head"])
def test_weights_that_were_never_set_are_an_error(missing):
    shape = StackShape(hidden=64, heads=2, kv_heads=2, head_dim=32, inner=96, vocab=128, rotary=32, eps=1e-5, scale=1.0)
    one, embedding = Stack(shape, 1, threads=1), torch.zeros(128, 64, dtype=torch.bfloat16)
    guesser = Guesser(one, one, embedding, num_layers=int(missing == "layer"))
    table = torch.zeros(8, 32)
    cache = DraftCache(1, 2, 32, torch.bfloat16, torch.device("cpu"), 256, exact=True)
    cache.add(0)
    rows = GuessRows(tokens=[3], positions=[0], spans=spans_of(cache.extend([0], [1])), cos=table, sin=table)
    with pytest.raises(RuntimeError, match=f"weights are missing: of (a|the) {missing}"):
        guesser.feed(rows, [0])
    with pytest.raises(RuntimeError, match=f"weights are missing: of (a|the) {missing}"):
        guess_chains(guesser, rows, [1], [None])
