"""`SamplingParams(prompt_logprobs=n)` through `LLM`: right, and the same text and bits with speculation."""

import asyncio
from dataclasses import replace

import pytest
import torch
from models import foreign

from outdraft import LLM, SamplingParams
from outdraft.engine.assembly.variant import network_of
from outdraft.nn.context import CausalContext
from outdraft.options.errors import RequestError

IDS = [(7 * i * i + i) % 250 + 3 for i in range(150)]
CHUNK = 100  # tokens of a prompt that a pass reads: two chunks
LONG, SHORT = {"prompt_token_ids": IDS}, {"prompt_token_ids": IDS[:90]}
ROW = 6 * 2 * 2 * 32 * 2  # bytes of zoo:target in bfloat16: layers, keys and values, heads, width
ASKED = SamplingParams(max_tokens=12, prompt_logprobs=2, logprobs=2)
KINDS = {"native": {}, "exact": {"dtype": "float32"}, "guarded": {"dtype": "float32", "exact": False}}


@pytest.fixture(scope="module", params=KINDS)
def llm(request) -> LLM:
    return LLM("zoo:target", drafter="none", max_num_batched_tokens=CHUNK, **KINDS[request.param])


def values(records):
    return [record.raw for record in records[1:]]


def test_a_prompt_is_scored_as_a_text_that_is_written(llm):
    """What follows the first k tokens is reported alike, whether token k was given or is to be written."""
    told = llm.generate(LONG, ASKED).prompt_logprobs
    assert told[0] is None and [one.token for one in told[1:]] == IDS[1:]
    for k in (1, 2, 63, 64, 65, CHUNK - 1, CHUNK, CHUNK + 1, len(IDS) - 1):
        beginning = {"prompt_token_ids": IDS[:k]}
        written = llm.generate(beginning, SamplingParams(max_tokens=1, logprobs=10**5)).logprobs[0]
        assert told[k].raw == pytest.approx(dict(written.top_raw)[IDS[k]], abs=1e-3), k
        assert [v for _, v in told[k].top_raw] == pytest.approx([v for _, v in written.top_raw[:2]], abs=1e-3), k
        if llm.config["kernels"] != "pytorch":  # where no bit depends on the pass
            assert told[k].top_raw == written.top_raw[:2], k


def test_all_bits_are_those_without_speculation_and_without_the_question(llm):
    drafting = llm.with_drafter("ngram", num_speculative_tokens=4)
    for settings in (ASKED, replace(ASKED, temperature=0.9, seed=5)):
        plain = [llm.generate(prompt, settings) for prompt in (LONG, SHORT)]
        together = drafting.generate([LONG, SHORT], settings)
        unasked = drafting.generate([LONG, SHORT], replace(settings, prompt_logprobs=None))
        for one, drafted, quiet in zip(plain, together, unasked, strict=True):
            assert one.prompt_logprobs == drafted.prompt_logprobs and len(one.prompt_logprobs) in (len(IDS), 90)
            assert one.token_ids == drafted.token_ids == quiet.token_ids and quiet.prompt_logprobs is None
            if llm.config["exact"]:
                assert one.logprobs == drafted.logprobs == quiet.logprobs


def test_a_full_pass_says_the_same():
    llm = LLM("zoo:target", drafter="none", dtype="float32", max_num_batched_tokens=CHUNK)
    told = llm.generate(LONG, ASKED).prompt_logprobs
    with torch.inference_mode():
        logits = network_of(llm.engine.parts)(torch.tensor(IDS), torch.arange(len(IDS)), CausalContext(1, len(IDS)))
    wanted = torch.log_softmax(logits[:-1], -1)
    assert values(told) == pytest.approx(wanted.gather(-1, torch.tensor(IDS[1:])[:, None])[:, 0].tolist(), abs=1e-3)


def test_a_model_of_transformers(tmp_path):
    pytest.importorskip("transformers")
    directory = foreign.write_model("qwen3_moe", tmp_path)
    ids = [(5 * i * i + i) % 60 for i in range(100)]
    llm = LLM(directory, drafter="none")
    drafting = llm.with_drafter("ngram", num_speculative_tokens=3)
    plain, drafted = (one.generate({"prompt_token_ids": ids}, ASKED) for one in (llm, drafting))
    wanted = torch.log_softmax(foreign.own_logits(directory, torch.tensor(ids))[:-1], -1)
    chosen = wanted.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert values(plain.prompt_logprobs) == pytest.approx(chosen.tolist(), abs=1e-4)
    assert plain.prompt_logprobs == drafted.prompt_logprobs and plain.token_ids == drafted.token_ids


def test_streams_tell_them_with_the_first_piece(llm):
    whole = llm.generate(SHORT, ASKED)
    first, *others = llm.stream(SHORT, ASKED)
    assert first.prompt_logprobs == whole.prompt_logprobs
    assert others and all(chunk.prompt_logprobs is None for chunk in others)

    async def written():
        return [chunk async for chunk in llm.astream(SHORT, ASKED)], await llm.agenerate(SHORT, ASKED)

    chunks, result = asyncio.run(written())
    assert chunks[0].prompt_logprobs == result.prompt_logprobs == whole.prompt_logprobs


def test_a_prompt_of_one_token_has_nothing_to_tell(llm):
    told = llm.generate({"prompt_token_ids": [5]}, ASKED)
    assert told.prompt_logprobs == (None,)


def test_the_first_of_several_texts_tells_them(llm):
    result = llm.generate(SHORT, replace(ASKED, n=2, temperature=1.0))
    assert [one.prompt_logprobs is None for one in result.outputs] == [False, True]


@pytest.mark.parametrize("words", [{"drafter": "none"}, {"drafter": "draft_model"}], ids=lambda words: words["drafter"])
def test_a_prompt_that_is_scored_takes_no_rows_over(words):
    llm = LLM("zoo:target", enable_prefix_caching=True, **words)
    quiet = SamplingParams(max_tokens=12)
    before = llm.generate(SHORT, quiet)
    asked = llm.generate(SHORT, ASKED)
    after = llm.generate(SHORT, quiet)
    assert asked.num_cached_tokens == 0 and len(asked.prompt_logprobs) == 90 and None not in asked.prompt_logprobs[1:]
    assert before.token_ids == asked.token_ids == after.token_ids
    if llm.config["kernels"] != "pytorch":
        assert after.num_cached_tokens > 0


CROWD = [{"prompt_token_ids": [(7 * i * i + i) % 250 + 3 for i in range(50 * j, 50 * j + 70)]} for j in range(6)]
TOLD = replace(ASKED, max_tokens=80, ignore_eos=True)


@pytest.fixture(scope="module")
def wanted():
    plain = LLM("zoo:target", drafter="none")
    return [plain.generate(prompt, TOLD) for prompt in CROWD]


@pytest.mark.parametrize("prefixes", [False, True])
def test_who_gives_back_its_memory_tells_every_token_once(prefixes, wanted):
    """Such a text is read again: with prefix caching perhaps from rows on that are there already."""
    llm = LLM(
        "zoo:target",
        drafter="ngram",
        kv_cache_memory=300 * ROW,
        max_num_batched_tokens=40,
        enable_prefix_caching=prefixes,
    )
    if llm.config["kernels"] == "pytorch":
        pytest.skip("the room is measured for the native kernels' rows")
    found = llm.generate(CROWD, TOLD)
    assert llm.engine.scheduler.num_preempted > 0
    for one, ours in zip(wanted, found, strict=True):
        assert one.token_ids == ours.token_ids and one.prompt_logprobs == ours.prompt_logprobs
        assert one.logprobs == ours.logprobs


def test_guidance_leaves_the_prompts_numbers_as_they_are(llm):
    guided = replace(ASKED, guidance_scale=1.5)
    plain, drafted = (one.generate(SHORT, guided) for one in (llm, llm.with_drafter("ngram", num_speculative_tokens=4)))
    assert plain.prompt_logprobs == drafted.prompt_logprobs == llm.generate(SHORT, ASKED).prompt_logprobs
    assert plain.token_ids == drafted.token_ids


def test_numbers_that_cannot_be_are_refused(llm):
    with pytest.raises(RequestError, match="prompt_logprobs=-1 is out of range: it must be None or at least 0"):
        SamplingParams(prompt_logprobs=-1)
    with pytest.raises(RequestError, match=r"prompt_logprobs=3 is a sampling setting, and belongs in SamplingParams"):
        llm.generate(SHORT, prompt_logprobs=3)
    many = llm.generate({"prompt_token_ids": [5, 6]}, replace(ASKED, prompt_logprobs=10**6))
    assert len(many.prompt_logprobs[1].top_raw) == network_of(llm.engine.parts).config.vocab_size
