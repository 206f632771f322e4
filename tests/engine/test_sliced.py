"""Prompts that are read in slices of layers while others decode: the same texts, and no trace of a dropped chunk."""

import asyncio

import pytest
import torch
from drafters.drafting import sequence

from outdraft import LLM, SamplingParams
from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.decode.sliced import SlicedStep
from outdraft.engine.assembly.variant import runner_of
from outdraft.engine.scheduler import slices
from outdraft.kernels.library import library
from outdraft.options.errors import CacheFullError
from outdraft.testing.in_slices import in_slices

pytestmark = pytest.mark.skipif(library() is None, reason="no native kernels here")

RUNS = {"prompt_token_ids": [5, 6, 7]}
ENDLESS = SamplingParams(max_tokens=900, ignore_eos=True)
PROMPTS = [{"prompt_token_ids": [3 + i * k % 90 for i in range(count)]} for k, count in ((1, 70), (7, 33), (11, 150))]
SETTINGS = [
    SamplingParams(max_tokens=12),
    SamplingParams(max_tokens=12, temperature=1.0, seed=4, repetition_penalty=1.2),
    SamplingParams(max_tokens=12, prompt_logprobs=1, logprobs=1),
]


@pytest.fixture
def ran(monkeypatch):
    """Every prompt beside others is read in slices; here is of which sequence each of them was."""
    seen: list[int] = []
    run = SlicedStep.run

    def told(self, num_layers, fail=None):
        seen.append(self.seq.id)
        return run(self, num_layers, fail)

    monkeypatch.setattr(SlicedStep, "run", told)
    monkeypatch.setattr(slices, "_FIRST", 16)
    with in_slices():
        yield seen


def beside(llm, asked):
    """What `asked`, a coroutine, gives while another text is written."""

    async def both():
        other = llm.astream(RUNS, ENDLESS)
        await anext(other)
        async with asyncio.timeout(60):
            found = await asked(llm)
        await other.aclose()
        return found

    return asyncio.run(both())


async def ask_all(llm):
    return [await llm.agenerate(*one) for one in zip(PROMPTS, SETTINGS, strict=True)]


@pytest.fixture(scope="module")
def wanted():
    """What is written of each prompt alone."""
    llm = LLM("zoo:target", drafter="none")
    return [llm.generate(*one) for one in zip(PROMPTS, SETTINGS, strict=True)]


@pytest.mark.parametrize(
    "words",
    [{"drafter": "none"}, {"drafter": "eagle"}, {"draft_model": "zoo:draft"}, {"drafter": "early_exit"}],
    ids=lambda words: next(iter(words.values())),
)
def test_texts_are_those_of_whole_passes(words, ran, wanted):
    found = beside(LLM("zoo:target", **words), ask_all)
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
    assert found[2].prompt_logprobs == wanted[2].prompt_logprobs
    assert len(set(ran)) == 3 and len(ran) > 3 * 4, "each was read in slices, and in more than one"


def test_a_request_that_leaves_in_the_middle_of_a_chunk_leaves_nothing(ran, wanted):
    llm = LLM("zoo:target", drafter="none", kv_cache="paged")
    cache, left = runner_of(llm.engine.parts).cache, list[bool]()

    async def leave(llm):
        for prompt in PROMPTS * 2:
            asked = asyncio.create_task(llm.agenerate(prompt, SETTINGS[0]))
            before = len(ran)
            while len(ran) < before + 2 and not asked.done():
                await asyncio.sleep(0)
            left.append(not asked.done())
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        return await ask_all(llm)

    assert [one.token_ids for one in beside(llm, leave)] == [one.token_ids for one in wanted]
    assert any(left), "some left while their prompt was read"
    llm.generate(RUNS, SETTINGS[0])
    cache.check()


@pytest.mark.logs_faults
def test_what_raises_in_a_slice_ends_its_own_request(ran, monkeypatch):
    llm = LLM("zoo:target", drafter="none")
    run = runner_of(llm.engine.parts).decoder.run

    def breaks(h, *args, start=0, **words):
        if start > 0:  # the other text has no layer by itself
            raise RuntimeError("planted")
        return run(h, *args, start=start, **words)

    monkeypatch.setattr(runner_of(llm.engine.parts).decoder, "run", breaks)

    async def ask(llm):
        with pytest.raises(Exception, match="planted"):
            await llm.agenerate(PROMPTS[0], SETTINGS[0])
        monkeypatch.undo()
        return await llm.agenerate(PROMPTS[1], SETTINGS[0])

    assert beside(llm, ask).token_ids == LLM("zoo:target", drafter="none").generate(PROMPTS[1], SETTINGS[0]).token_ids


@pytest.mark.parametrize("is_beside", [True, False], ids=["in slices", "whole"])
def test_a_chunk_that_finds_no_room_is_read_again(is_beside, ran, monkeypatch):
    """Once: a request that is refused again has no room by itself."""
    llm = LLM("zoo:target", drafter="none", kv_cache="paged")
    cache, refused = runner_of(llm.engine.parts).cache, []
    reserve = cache.reserve

    def full(seq, n):
        if n > 8 and len(refused) < most:
            refused.append(n)
            raise CacheFullError("planted: the pool is full")
        return reserve(seq, n)

    monkeypatch.setattr(cache, "reserve", full)

    def ask():
        asked = llm.agenerate(PROMPTS[1], SETTINGS[0])
        return beside(llm, lambda llm: asked) if is_beside else asyncio.run(asked)

    most = 1
    wanted = LLM("zoo:target", drafter="none").generate(PROMPTS[1], SETTINGS[0]).token_ids
    assert ask().token_ids == wanted and len(refused) == 1
    most = 10
    with pytest.raises(CacheFullError):
        ask()


def test_logits_and_taps_are_those_of_a_whole_pass():
    """In one native call, layer by layer in Python (which tap 0 wants), and in slices of two layers."""
    runner = runner_of(LLM("zoo:target", drafter="none").engine.parts)
    seq = sequence([5, 3, 9, 5, 3, 9, 7])
    runner.begin(seq)
    packed = pack([seq], [chain([seq.pending])])
    taps = (1, runner.num_layers - 1, runner.num_layers)
    whole, by_layer, sliced = runner.forward(packed, taps), runner.forward(packed, (0, *taps)), None
    started = runner.start(packed, (0, *taps))
    while sliced is None:
        sliced = started.run(2)
    for other in (by_layer, sliced):
        assert torch.equal(whole.logits, other.logits)
        assert all(torch.equal(whole.hidden[tap], other.hidden[tap]) for tap in taps)
    assert torch.equal(by_layer.hidden[0], sliced.hidden[0]) and len(whole.hidden[1]) == 7
    runner.end(seq)
