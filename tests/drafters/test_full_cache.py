"""A drafter whose own cache is full: it guesses less for a while, forgets nothing wrongly, and no text changes."""

import logging
from random import Random

import pytest
import torch

from lab.own_caches import own_caches
from outdraft import LLM, SamplingParams
from outdraft.cache.config import CacheConfig
from outdraft.core.drafter import Seen
from outdraft.drafters.hydra.learn import LEARN, HydraLearning
from outdraft.drafters.shared.heads.states import StemStates
from outdraft.drafters.shared.networks import paired_text
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.engine.assembly.variant import runner_of
from outdraft.engine.runner import Runner
from outdraft.models.files.load import save_model
from outdraft.options.errors import CacheFullError
from outdraft.testing.tiny import tiny_model
from tests.drafters.drafting import sequence

PROMPTS = [{"prompt_token_ids": [5 + (7 * i + j) % 90 for j in range(20 + 9 * i)]} for i in range(4)]
SETTINGS = [
    SamplingParams(max_tokens=40, ignore_eos=True),
    SamplingParams(max_tokens=40, ignore_eos=True, temperature=0.9, seed=6),
]
EAGLE = {"drafter": {"name": "eagle", "model": "zoo:eagle"}}
DRAFTERS = {
    "chain": {"draft_model": "zoo:draft", "drafter": {"name": "draft_model", "width": 1}},
    "tree": {"draft_model": "zoo:draft", "drafter": {"name": "draft_model", "width": 2}},
    "features": EAGLE,
}


def fill(llm, is_full):
    """Have the drafter's caches say that they are full whenever `is_full()` says so."""
    caches = own_caches(llm.engine.parts.drafter, runner_of(llm.engine.parts).cache)
    assert caches, "the drafter keeps no rows of its own"
    for cache in caches:
        take = cache.store.take

        def take_or_not(count, take=take):
            if count > 0 and is_full():
                raise CacheFullError("planted: the pool is full")
            return take(count)

        cache.store.take = take_or_not
    return caches


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("target")
    save_model(tiny_model("llama", vocab=257, layers=2, hidden=32, seed=3), directory)
    return directory


def cache_of(num_pages):
    config = CacheConfig(layout="paged", num_pages=num_pages).with_own_pool()
    cache = DraftCache(1, 1, 2, torch.float32, torch.device("cpu"), 100, exact=True, config=config)
    for seq in (0, 1):
        cache.add(seq)
    return cache


@pytest.mark.parametrize("grow", ["extend", "branch"])
def test_a_pass_without_room_leaves_nothing_behind(grow):
    cache = cache_of(num_pages=3)
    with pytest.raises(CacheFullError):
        if grow == "extend":
            cache.extend([0, 1], [20, 20])
        else:
            cache.branch([0, 1], [[[]] * 20, [[]] * 20])
    assert cache.rows.num_free == 3
    assert cache.grow(1, 20) == 0, "the next rows begin where the text ends"


def test_one_more_row_without_room_is_not_counted():
    cache = cache_of(num_pages=1)
    assert cache.grow(0, 10) == 0
    with pytest.raises(CacheFullError):
        cache.grow(0, 10)
    assert cache.grow(0, 6) == 10


@pytest.fixture(scope="module")
def wanted():
    """Each prompt greedily or seeded, as plain decoding writes it."""
    return [one.token_ids for one in LLM("zoo:target", drafter="none").generate(PROMPTS, SETTINGS * 2)]


@pytest.mark.parametrize("name", DRAFTERS)
def test_no_text_changes_and_no_sequence_loses_the_drafter(name, wanted, caplog):
    llm = LLM("zoo:target", kv_cache="paged", policy="fixed", num_speculative_tokens=4, **DRAFTERS[name])
    rng = Random(1)
    fill(llm, lambda: rng.random() < 0.25)
    with caplog.at_level(logging.WARNING, logger="outdraft"):
        results = llm.generate(PROMPTS, SETTINGS * 2)
    assert [one.token_ids for one in results] == wanted and not caplog.records
    for result in results:
        assert result.stats.num_draft_tokens > 20, "it went on guessing"


@pytest.mark.parametrize("width", [1, 2])
def test_what_a_twin_guesses_after_a_full_cache_is_right(model_dir, width, caplog):
    """A draft that is the target itself errs only where its rows are not what they should be."""
    words = {"drafter": {"name": "draft_model", "width": width}, "policy": "fixed", "num_speculative_tokens": 5}
    llm = LLM(model_dir, draft_model=model_dir, dtype="float32", kv_cache="paged", **words)
    rng = Random(2)
    fill(llm, lambda: rng.random() < 0.5)
    results = llm.generate(PROMPTS, SamplingParams(max_tokens=60, ignore_eos=True))
    drafted = sum(one.stats.num_draft_tokens for one in results)
    deepest = sum(one.stats.num_accepted_tokens for one in results)
    assert not caplog.records
    assert drafted > 60 and (deepest == drafted if width == 1 else deepest > drafted / 4)


@torch.inference_mode()
def test_a_chain_that_broke_off_is_not_taken_for_text(monkeypatch):
    """Of a guess of two tokens the second finds no page; then both come true, and are read as text."""
    decoder = tiny_model(vocab=31, dtype=torch.float64)
    broken, fresh = (DraftModel(decoder, cache=CacheConfig(layout="paged")) for _ in range(2))
    seq = sequence(range(1, 16))
    for model in (broken, fresh):
        model.add(seq.id)
    broken.read([seq])
    broken.guess([seq.id], [7], 1)
    with monkeypatch.context() as filling:
        filling.setattr(broken._cache.rows.store, "take", lambda count: refuse())
        with pytest.raises(CacheFullError):
            broken.guess([seq.id], [8], 2)
    seq.tokens += [7, 8, 9]
    torch.testing.assert_close(broken.read([seq]), fresh.read([seq]))


def test_a_guess_that_broke_off_leaves_no_rows_of_features():
    llm = LLM("zoo:target", kv_cache="paged", policy="fixed", num_speculative_tokens=6, **EAGLE)
    drafter, rng = llm.engine.parts.drafter, Random(3)
    fill(llm, lambda: rng.random() < 0.5)
    propose, left = drafter.propose, []

    def watched(seqs, budgets):
        try:
            return propose(seqs, budgets)
        finally:
            left.append(sum(drafter._pairs.cache._num_guessed.values()))

    drafter.propose = watched
    llm.generate(PROMPTS, SETTINGS[0])
    assert len(left) > 10 and not any(left)


def test_what_was_seen_waits_until_there_is_room(monkeypatch):
    """The cache is full whenever something is learned: that is read with the next guess, and no guess is another."""
    monkeypatch.setattr(paired_text, "MAX_WAITING", 8)
    words = {"kv_cache": "paged", "policy": "fixed", "num_speculative_tokens": 4, **EAGLE}
    params = SETTINGS[0]
    usual = LLM("zoo:target", **words).generate(PROMPTS, params)
    llm, learning, full = LLM("zoo:target", **words), [False], []
    drafter = llm.engine.parts.drafter
    observe = drafter.observe

    def watched(seen):
        learning[0] = True
        try:
            observe(seen)
        finally:
            learning[0] = False

    drafter.observe = watched
    fill(llm, lambda: learning[0] and (full.append(1) or True))
    results = llm.generate(PROMPTS, params)
    assert full
    assert [one.token_ids for one in results] == [one.token_ids for one in usual]
    told = [(one.stats.num_draft_tokens, one.stats.num_accepted_tokens) for one in results]
    assert told == [(one.stats.num_draft_tokens, one.stats.num_accepted_tokens) for one in usual]


@torch.inference_mode()
def test_the_states_below_heads_wait_too(monkeypatch):
    monkeypatch.setattr(paired_text, "MAX_WAITING", 2)
    target = tiny_model(vocab=31, dtype=torch.float64)
    net = (
        LEARN.new(HydraLearning(prefix_layer=True, num_layers=3), target, 1)
        .module.to(torch.float64)
        .eval()
        .requires_grad_(False)
    )
    states, tap = torch.randn(9, target.config.hidden_size, dtype=torch.float64), net.config.tap
    read = []
    for is_full in (False, True):
        memory = StemStates(net.stem, net.config, lambda h: h, Runner(target, cache=CacheConfig(layout="paged")).port)
        seq, store = sequence(range(1, 11)), memory.cache.rows.store
        memory.begin([seq])
        with monkeypatch.context() as filling:
            if is_full:
                filling.setattr(store, "take", lambda count: refuse())
            for start in (0, 3, 6):
                seen = states[start : start + 3]
                memory.learn(Seen(seq=seq, start=start, num_committed=3, hidden={tap: seen}))
        assert memory.knows(seq)
        read.append(memory.of([seq]))
    torch.testing.assert_close(read[0], read[1])


def refuse():
    raise CacheFullError("planted: the pool is full")
