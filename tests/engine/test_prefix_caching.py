"""`enable_prefix_caching`: the same texts, less reading; another salt finds nothing."""

import pytest

from outdraft import LLM, SamplingParams
from outdraft.engine.assembly.variant import runner_of
from outdraft.options.errors import ConfigError

PROMPT = {"prompt_token_ids": [3 + i % 50 for i in range(70)]}
LONGER = {"prompt_token_ids": [3 + i % 50 for i in range(90)]}
SETTINGS = [SamplingParams(max_tokens=20), SamplingParams(max_tokens=20, temperature=1.0, seed=4)]


@pytest.mark.parametrize(("words", "params"), [({"drafter": "none"}, SETTINGS[1]), ({"drafter": "ngram"}, SETTINGS[0])])
def test_a_prompt_that_began_alike_is_read_from_there_on(words, params):
    plain = LLM("zoo:target", drafter="none")
    llm = LLM("zoo:target", enable_prefix_caching=True, **words)
    assert llm.config["kv_cache"] == "paged" and llm.config["prefix_caching"]
    found = [llm.generate(prompt, params) for prompt in (PROMPT, PROMPT, LONGER)]
    native = llm.config["kernels"] != "pytorch"
    assert [one.num_cached_tokens for one in found] == ([0, 64, 64] if native else [0, 0, 0])
    once, longer = (plain.generate(prompt, params).token_ids for prompt in (PROMPT, LONGER))
    assert [one.token_ids for one in found] == [once, once, longer]


@pytest.mark.parametrize("drafter", ["none", "draft_model"])
def test_several_texts_of_one_prompt_read_it_once(drafter):
    params = SamplingParams(max_tokens=4, temperature=1.0, seed=4, n=3)
    llm = LLM("zoo:target", drafter=drafter, enable_prefix_caching=True)
    texts = llm.generate(PROMPT, params).outputs
    assert [one.num_cached_tokens for one in texts] == ([0, 64, 64] if llm.config["kernels"] != "pytorch" else [0] * 3)
    wanted = LLM("zoo:target", drafter="none").generate(PROMPT, params).outputs
    assert [one.token_ids for one in texts] == [one.token_ids for one in wanted]


def test_prompts_that_arrive_together_read_their_common_beginning_once():
    """The same 192 tokens in front, which are two chunks; one who asks for log probabilities reads for itself."""
    common = [3 + i % 50 for i in range(192)]
    prompts = [{"prompt_token_ids": [*common, *range(60 + i, 90 + 3 * i)]} for i in range(3)] + [PROMPT]
    settings = [SamplingParams(max_tokens=3, prompt_logprobs=0 if i == 2 else None) for i in range(4)]
    llm = LLM("zoo:target", drafter="none", enable_prefix_caching=True, max_num_batched_tokens=128)
    texts = llm.generate(prompts, settings)
    found = [one.num_cached_tokens for one in texts]
    assert found == ([0, 192, 0, 64] if llm.config["kernels"] != "pytorch" else [0, 128, 0, 0])
    plain = LLM("zoo:target", drafter="none")
    assert [one.token_ids for one in texts] == [plain.generate(p, settings[0]).token_ids for p in prompts]


def test_unless_asked_prefixes_are_kept_if_the_kernels_read_pages():
    llm = LLM("zoo:target", drafter="none", enable_prefix_caching=None)
    native = llm.config["kernels"] != "pytorch"
    assert (llm.config["prefix_caching"], llm.config["kv_cache"]) == (native, "paged" if native else "static")
    found = [llm.generate(PROMPT, SETTINGS[0]).num_cached_tokens for _ in range(2)]
    assert found == [0, 64 * native]
    for words in ({"kv_cache": "static"}, {"precision": "elastic"}):
        assert not LLM("zoo:target", drafter="none", enable_prefix_caching=None, **words).config["prefix_caching"]


def test_a_salt_is_a_cache_of_its_own():
    llm = LLM("zoo:target", drafter="none", enable_prefix_caching=True)
    salts = ["a", "b", "a", None]
    found = [llm.generate(PROMPT, SETTINGS[0], cache_salt=salt) for salt in salts]
    assert len({one.token_ids for one in found}) == 1
    if llm.config["kernels"] != "pytorch":
        assert [one.num_cached_tokens for one in found] == [0, 0, 64, 0]


def test_blocks_of_their_own_cannot_be_shared():
    with pytest.raises(ConfigError, match="kv_cache='static' has a block for each sequence: enable_prefix_caching"):
        LLM("zoo:target", kv_cache="static", enable_prefix_caching=True)


def test_forgetting_leaves_nothing_for_later_texts():
    llm = LLM("zoo:target", draft_model="zoo:draft", enable_prefix_caching=True)
    first = llm.generate(PROMPT, SETTINGS[0])
    llm.forget()
    again = llm.generate(PROMPT, SETTINGS[0])
    assert again.num_cached_tokens == 0 and again.token_ids == first.token_ids
    pool = runner_of(llm.engine.parts).cache_config.pool
    assert len(pool.page_bytes) == 2  # the draft's rows come out of the same memory
