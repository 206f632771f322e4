"""`kv_cache_memory`: a hard limit. Many requests go through little memory, with the same texts; what never fits is
refused at once."""

from time import perf_counter

import pytest

from outdraft import LLM, SamplingParams
from outdraft.engine.assembly.memory import Memory
from outdraft.options.errors import CapabilityError, ConfigError, RequestError

SETTINGS = [SamplingParams(max_tokens=40), SamplingParams(max_tokens=40, temperature=0.9, seed=6)]
POSITION = 6 * 2 * 2 * 32 * 2  # bytes of the zoo's target in bfloat16: layers, keys and values, heads, width


def prompts(count):
    return [{"prompt_token_ids": [5 + (7 * i + j) % 90 for j in range(20 + 9 * (i % 5))]} for i in range(count)]


@pytest.fixture(scope="module")
def right():
    """What plain decoding writes, for each of the settings."""
    llm = LLM("zoo:target", drafter="none")
    return [[one.token_ids for one in llm.generate(prompts(12), params)] for params in SETTINGS]


@pytest.mark.parametrize(
    ("words", "seeded", "prefixes"),
    [
        ({"drafter": "ngram"}, False, False),
        ({"drafter": "ngram"}, True, True),
        ({"draft_model": "zoo:draft"}, False, True),
        ({"draft_model": "zoo:draft"}, True, False),
    ],
)
def test_memory_for_four_serves_many(words, seeded, prefixes, right):
    memory = 4 * 96 * POSITION * 5 // 4  # the draft's rows are small beside the target's
    llm = LLM("zoo:target", kv_cache_memory=memory, enable_prefix_caching=prefixes, **words)
    assert [one.token_ids for one in llm.generate(prompts(12), SETTINGS[seeded])] == right[seeded]
    room = llm.engine.parts.room
    assert room.capacity and room.free * 16 == room.capacity


def test_what_never_fits_is_refused_at_once():
    llm = LLM("zoo:target", drafter="none", kv_cache_memory=64 * POSITION)
    with pytest.raises(RequestError, match=r"20 tokens of prompt and max_tokens=64 never fit: .* holds 64 tokens"):
        llm.generate(prompts(1), SamplingParams(max_tokens=64))
    assert llm.generate(prompts(1)[0], SamplingParams(max_tokens=None, ignore_eos=True)).finish_reason == "length"


def test_where_the_machine_decides_a_text_ends_with_the_memory(monkeypatch):
    """An eighth of what is free is left beside the weights, and half of that is for rows; the last token has none."""
    has = Memory(free=16 * 64 * POSITION, total=2**40)
    monkeypatch.setattr("outdraft.engine.assembly.assemble.read_memory", lambda: has)
    llm = LLM("zoo:target", drafter="none", enable_prefix_caching=True)
    result = llm.generate(prompts(1)[0], SamplingParams(max_tokens=200, ignore_eos=True))
    assert result.finish_reason == "length" and len(result.token_ids) == 64 - 20 + 1
    with pytest.raises(RequestError, match=r"70 tokens of prompt never fit: .* holds 64 tokens"):
        llm.generate({"prompt_token_ids": [5] * 70}, SamplingParams(max_tokens=1))


def test_memory_for_less_than_a_page_is_refused():
    with pytest.raises(CapabilityError, match="kv_cache_memory=100 bytes holds no page"):
        LLM("zoo:target", drafter="none", kv_cache_memory=100)


def test_a_limit_is_for_a_pool():
    with pytest.raises(ConfigError, match=r"kv_cache='static' .* kv_cache_memory"):
        LLM("zoo:target", kv_cache="static", kv_cache_memory="1GiB")


def test_a_deadline_ends_a_text_as_it_is():
    llm = LLM("zoo:target", drafter="none")
    began = perf_counter()
    result = llm.generate("Once upon a time", SamplingParams(max_tokens=900, ignore_eos=True), timeout=0.02)
    assert result.finish_reason == "timeout" and len(result.token_ids) < 900 and perf_counter() - began < 60
    chunks = list(llm.stream("Once upon a time", SamplingParams(max_tokens=900, ignore_eos=True), timeout=0.02))
    assert chunks[-1].finish_reason == "timeout"
    with pytest.raises(RequestError, match=r"timeout=0\.0 must be more than 0 seconds"):
        llm.generate("Once", timeout=0.0)


def test_a_full_queue_refuses():
    llm = LLM("zoo:target", drafter="none", max_num_seqs=1, max_num_waiting=2)
    results = llm.generate(prompts(5), SETTINGS[0])
    refused = [one for one in results if one.error is not None]
    assert len(refused) == 2 and "max_num_waiting=2" in str(refused[0].error)
    assert all(isinstance(one.error, RequestError) for one in refused)


def test_engines_beside_one_that_has_run_have_memory_of_their_own():
    llm = LLM("zoo:target", drafter="none", kv_cache_memory="1MiB", enable_prefix_caching=True)
    wanted = llm.generate(prompts(1), SETTINGS[0])[0].token_ids
    beside = llm.with_speculation(draft_model="zoo:draft")
    assert beside.generate(prompts(1), SETTINGS[0])[0].token_ids == wanted
    pools = [one.engine.parts.room for one in (llm, beside)]
    assert pools[1].capacity < pools[0].capacity  # the draft's rows come out of the same size


def test_where_none_may_wait_a_request_without_memory_is_refused_however_many_seats_are_free():
    llm = LLM("zoo:target", drafter="none", kv_cache_memory=96 * POSITION, max_num_waiting=0)
    asked = [{"prompt_token_ids": [5 + i, *range(5, 44)]} for i in range(4)]  # three pages each, of six
    results = llm.generate(asked, SamplingParams(max_tokens=20, ignore_eos=True))
    assert [one.finish_reason for one in results] == ["length", "error", "error", "error"]
    assert "1 requests are waiting, and max_num_waiting=0" in str(results[1].error)
