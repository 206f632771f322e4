"""`LLM`: streams, async, cancelling, statistics, and errors before any work."""

import asyncio

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.core.events import Source
from outdraft.engine.assembly.variant import network_of
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError, NumericsError, RequestError

GREEDY = SamplingParams(max_tokens=24)
SEEDED = SamplingParams(max_tokens=24, temperature=1.0, seed=5)


@pytest.fixture(scope="module")
def llm(model_dir) -> LLM:
    return LLM(model_dir, drafter="none", dtype="float32")


@pytest.fixture(scope="module")
def fast(llm) -> LLM:
    return llm.with_drafter("ngram", num_speculative_tokens=4)


@pytest.mark.parametrize("params", [GREEDY, SEEDED])
def test_drafting_changes_nothing_but_the_sources(llm, fast, params):
    prompts = ["abcabcabcabc", "x", "the cat sat on the mat, the cat sat"]
    plain, quick = llm.generate(prompts, params), fast.generate(prompts, params)
    assert [r.token_ids for r in plain] == [r.token_ids for r in quick]
    assert {s for r in plain for s in r.sources} == {Source.PLAIN}
    assert all(len(r.sources) == len(r.token_ids) for r in quick)
    assert sum(r.stats.num_draft_tokens for r in quick) > 0


def test_each_request_has_its_own_settings_and_may_turn_speculation_off(fast):
    many = fast.generate(["abab", "abab"], [GREEDY, SEEDED])
    assert many[0].token_ids != many[1].token_ids
    off = fast.generate("abab", GREEDY, num_speculative_tokens=0)
    assert off.token_ids == many[0].token_ids and off.stats.num_draft_tokens == 0


def test_a_stream_joins_to_the_result(fast):
    chunks = list(fast.stream("abcabcabc", GREEDY))
    whole = fast.generate("abcabcabc", GREEDY)
    assert "".join(c.text for c in chunks) == whole.text
    assert tuple(t for c in chunks for t in c.token_ids) == whole.token_ids
    assert [c.finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1) and chunks[-1].finish_reason == "length"


def test_leaving_a_stream_cancels_the_request(fast):
    stream = fast.stream("abc", GREEDY)
    next(stream)
    stream.close()
    assert not fast._thread.ask(lambda engine: engine.has_work)


def test_async_callers_share_the_batch_and_get_their_own_text(llm, fast):
    async def both():
        pieces = [chunk.text async for chunk in fast.astream("abcabc", GREEDY)]
        return await asyncio.gather(*(fast.agenerate(p, GREEDY) for p in ("abcabc", "xyz", "q"))), "".join(pieces)

    results, streamed = asyncio.run(both())
    alone = llm.generate(["abcabc", "xyz", "q"], GREEDY)
    assert [r.text for r in results] == [r.text for r in alone] and streamed == alone[0].text
    assert not fast.engine.has_work


def test_a_stop_string_cuts_inside_an_accepted_run(llm, fast):
    text = llm.generate("abcabcabc", SEEDED).text
    stop = text[7:9]
    params = SamplingParams(max_tokens=24, temperature=1.0, seed=5, stop=(stop,))
    for engine in (llm, fast):
        result = engine.generate("abcabcabc", params)
        assert result.text == text[: text.index(stop)] and result.finish_reason == "stop"
        assert "".join(c.text for c in engine.stream("abcabcabc", params)) == result.text


def test_a_stop_string_that_comes_before_the_least_tokens_does_not_count(llm, fast):
    words = {
        "max_tokens": 24,
        "temperature": 1.0,
        "seed": 5,
        "stop": tuple(set(llm.generate("abcabcabc", SEEDED).text)),
    }
    for engine in (llm, fast):
        early, late = (engine.generate("abcabcabc", SamplingParams(**words, min_tokens=least)) for least in (0, 12))
        assert len(early.token_ids) <= 3 and len(late.token_ids) > 12 and late.finish_reason == "stop"
        streamed = engine.stream("abcabcabc", SamplingParams(**words, min_tokens=12))
        assert "".join(chunk.text for chunk in streamed) == late.text


def test_logprobs_of_drafted_tokens_equal_those_of_plain_decoding(llm, fast):
    params = SamplingParams(max_tokens=24, ignore_eos=True, logprobs=3, temperature=0.7, seed=1, repetition_penalty=1.1)
    plain, quick = llm.generate("abababab", params), fast.generate("abababab", params)
    assert plain.logprobs == quick.logprobs and len(plain.logprobs) == 24
    first = plain.logprobs[0]
    assert len(first.top_raw) == 3 and first.raw <= first.top_raw[0][1] and first.warped != first.raw
    assert llm.generate("abab", GREEDY).logprobs is None


def test_metrics_and_config_say_what_ran(fast):
    result = fast.generate("abcabcabcabc", GREEDY)
    metrics = result.metrics["speculative_decoding"]
    assert metrics["num_spec_steps"] == result.stats.num_drafted_steps
    assert sum(metrics["acceptance_histogram"]) == metrics["num_spec_steps"]
    assert fast.config["drafter"]["name"] == "ngram" and fast.config["policy"]["num_speculative_tokens"] == 4
    assert result.stats.times["target"] > 0


def test_speculative_config_in_vllms_words(model_dir, llm):
    config = {"method": "ngram", "prompt_lookup_max": 2, "num_speculative_tokens": 3}
    other = LLM(model_dir, dtype="float32", speculative_config=config)
    assert other.config["drafter"]["max_ngram"] == 2 and other.config["policy"]["num_speculative_tokens"] == 3
    assert other.generate("abab", GREEDY).token_ids == llm.generate("abab", GREEDY).token_ids


@pytest.mark.parametrize(
    "config,named",
    [
        ({"method": "ngram", "prompt_lookup_mx": 2}, "prompt_lookup_max"),
        ({"method": "ngrm"}, "ngram"),
        ({"model": "x"}, "x is not a directory"),
        ({"method": "ngram", "num_speculative_tokens": -1}, "-1"),
    ],
)
def test_a_wrong_speculative_config_names_the_cure(model_dir, config, named):
    with pytest.raises((ConfigError, ModelLoadError), match=named):
        LLM(model_dir, dtype="float32", speculative_config=config)


@pytest.mark.parametrize("words", [{"max_num_seqs": 0}, {"max_model_len": 0}, {"max_model_len": -4}])
def test_an_engine_without_room_is_refused(model_dir, words):
    with pytest.raises(ConfigError, match=f"{next(iter(words))}=.*at least 1"):
        LLM(model_dir, **words)


@pytest.mark.parametrize("count", [-2, 10**6])
def test_a_draft_length_out_of_range_is_refused(fast, count):
    with pytest.raises(RequestError, match=f"num_speculative_tokens={count} is out of range"):
        fast.generate("x", GREEDY, num_speculative_tokens=count)


def test_a_draft_of_another_vocabulary_is_refused(llm, tmp_path):
    from outdraft.models.files.load import save_model
    from outdraft.testing.tiny import tiny_model

    save_model(tiny_model("llama", vocab=61, layers=1, hidden=32), tmp_path)
    with pytest.raises(CapabilityError, match="61"):
        llm.with_drafter({"name": "draft_model", "model": str(tmp_path)})


def test_missing_directory(tmp_path):
    with pytest.raises(ModelLoadError):
        LLM(tmp_path / "nothing")


def test_nan_logits_end_the_request_with_an_error_that_says_so(model_dir):
    broken = LLM(model_dir, dtype="float32")
    with torch.no_grad():
        network_of(broken.engine.parts).final_norm.weight[0] = torch.nan
    with pytest.raises(NumericsError, match="damaged"):
        broken.generate("abc", GREEDY)
    assert not broken.engine.has_work


def test_the_cache_is_chosen_and_named(model_dir, llm):
    paged = LLM(model_dir, dtype="float32", kv_cache="paged")
    small = LLM(model_dir, dtype="float32", kv_cache="paged", kv_cache_dtype="int8")
    assert [paged.generate("abc abc", p).token_ids for p in (GREEDY, SEEDED)] == [
        llm.generate("abc abc", p).token_ids for p in (GREEDY, SEEDED)
    ]
    told = [[one.config[key] for key in ("kv_cache", "kv_cache_dtype", "variant")] for one in (llm, paged, small)]
    assert told == [["static", "float32", ""], ["paged", "float32", ""], ["paged", "int8", "kv-int8"]]
    again = small.with_drafter("ngram", num_speculative_tokens=4)
    assert again.config["variant"] == "kv-int8"
    assert again.generate("abc abc", GREEDY).token_ids == small.generate("abc abc", GREEDY).token_ids
    with pytest.raises(ConfigError, match="kv_cache='ring': it is one of static, paged"):
        LLM(model_dir, kv_cache="ring")
    with pytest.raises(ConfigError, match="kv_cache_dtype='fp8': it is one of auto, int8"):
        LLM(model_dir, kv_cache_dtype="fp8")
