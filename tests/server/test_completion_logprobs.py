"""Log probabilities of completions as OpenAI's clients read them: tokens, the best in their places, and offsets."""

from typing import Any

import httpx
import pytest

from outdraft import LLM, SamplingParams
from tests.server.chatty import events

PROMPT = "It was late"
SPREAD = "é😀ab"  # in seven tokens, of which six are parts of characters
BODY: dict[str, Any] = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24, "logprobs": 2}
WRITTEN = {**BODY, "structured_outputs": {"choice": [SPREAD]}}


def choice(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    (only,) = reply.json()["choices"]
    return dict(only)


def streamed(client: httpx.Client, body: dict[str, Any], name: str) -> list[Any]:
    """A field of `logprobs`, of all chunks."""
    return [one for told in events(client, "/v1/completions", body) for one in told["choices"][0]["logprobs"][name]]


def test_offsets_count_the_characters_that_tokens_complete(client: httpx.Client) -> None:
    told = choice(client, WRITTEN)
    assert told["text"] == SPREAD and told["logprobs"]["text_offset"] == [0, 0, 1, 1, 1, 1, 2]
    assert choice(client, {**WRITTEN, "echo": True})["logprobs"]["text_offset"][3:] == [11, 11, 12, 12, 12, 12, 13]


@pytest.mark.parametrize(
    "more", [{}, {"structured_outputs": {"choice": [SPREAD]}}, {"echo": True}, {"stop": ["the first zebra"]}]
)
@pytest.mark.parametrize("interval", [0, 1])
def test_a_stream_has_the_offsets_of_the_whole(client: httpx.Client, more: dict[str, Any], interval: int) -> None:
    """Text that may begin a stop string is held back, and counts all the same."""
    body = {**BODY, **more, "stream_interval": interval}
    whole = choice(client, {**BODY, **more})["logprobs"]
    assert streamed(client, body, "text_offset") == whole["text_offset"]
    assert streamed(client, body, "tokens") == whole["tokens"]


def test_what_was_resumed_has_a_length(client: httpx.Client, llm: LLM) -> None:
    ids = list(llm.generate(PROMPT, SamplingParams(max_tokens=24)).token_ids)
    whole, cut = choice(client, BODY)["logprobs"]["text_offset"], {**BODY, "resume_token_ids": [ids[:5]]}
    assert streamed(client, cut, "text_offset") == whole[5:]
    assert choice(client, cut)["logprobs"]["text_offset"] == whole[5:]


def test_an_echoed_prompt_has_its_first_token(client: httpx.Client) -> None:
    told = choice(client, {**BODY, "echo": True, "max_tokens": 1})["logprobs"]
    assert told["tokens"][:3] == ["It", " was", " late"] and told["text_offset"] == [0, 2, 6, 11]
    assert [one is None for one in told["token_logprobs"]] == [True, False, False, False]
    assert [one is None for one in told["top_logprobs"]] == [True, False, False, False]


@pytest.mark.parametrize("form", ["text", "ids"])
def test_an_echoed_prompt_is_the_prompt_that_was_sent(client: httpx.Client, llm: LLM, form: str) -> None:
    """With the names of its special tokens, which take their room in it."""
    texts = ["It was<|endoftext|>late é", "The old"]
    prompts = texts if form == "text" else [llm.get_tokenizer().encode(one) for one in texts]
    body = {**BODY, "prompt": prompts, "echo": True, "max_tokens": 1}
    told = client.post("/v1/completions", json=body).json()["choices"]
    for text, one in zip(texts, told, strict=True):
        assert one["text"].startswith(text)
    assert told[0]["logprobs"]["tokens"][:5] == ["It", " was", "<|endoftext|>", "l", "ate"]
    assert told[0]["logprobs"]["text_offset"] == [0, 2, 6, 19, 20, 23, 24, 24, 25]
    pieces = [event["choices"][0] for event in events(client, "/v1/completions", body)]
    assert sorted(pieces, key=lambda one: int(one["index"])) == told


@pytest.mark.parametrize("count", [0, 2, 20])
def test_the_best_are_all_there_and_the_token_itself(client: httpx.Client, llm: LLM, count: int) -> None:
    told = choice(client, {**WRITTEN, "logprobs": count})["logprobs"]
    assert told["tokens"] == [*(rf"bytes:\x{byte:02x}" for byte in "é😀".encode()), "ab"]
    for token, value, best in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
        assert best[token] == value and len(best) in (count, count + 1)
        assert [*best.values()][:count] == sorted(best.values(), reverse=True)[:count]


def test_a_special_token_has_its_name(client: httpx.Client, llm: LLM) -> None:
    (end,) = llm.get_tokenizer().special_ids
    ends: dict[str, Any] = {"logit_bias": {str(end): 90}, "max_tokens": 3}
    told = choice(client, {**BODY, **ends})["logprobs"]
    assert told["tokens"] == ["<|endoftext|>"] and "<|endoftext|>" in told["top_logprobs"][0]
    asked = {"messages": [{"role": "user", "content": "Hello"}], **ends, "logprobs": True, "top_logprobs": 20}
    (only,) = client.post("/v1/chat/completions", json=asked).json()["choices"][0]["logprobs"]["content"]
    assert (only["token"], only["bytes"]) == ("<|endoftext|>", [])


@pytest.mark.parametrize("more", [{}, {"logit_bias": {"0": 90}}], ids=["a token", "an end"])
def test_an_echo_alone_has_no_token(client: httpx.Client, more: dict[str, Any]) -> None:
    """The engine writes one, which no request asked for."""
    body = {**BODY, **more, "echo": True, "max_tokens": 0, "return_token_ids": True}
    reply = client.post("/v1/completions", json=body).json()
    told = reply["choices"][0]
    assert told["text"] == PROMPT and told["token_ids"] == told["token_sources"] == told["token_texts"] == []
    assert len(told["prompt_token_ids"]) == len(told["logprobs"]["tokens"]) == 3
    assert told["finish_reason"] == "length"
    counted = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    chunk, last = events(client, "/v1/completions", {**body, **counted})
    assert chunk["choices"] == [told]
    for usage in (reply["usage"], chunk["usage"], last["usage"]):
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 0, 3)


def test_null_is_what_openai_says_it_is(client: httpx.Client) -> None:
    reply = client.post("/v1/completions", json={"prompt": PROMPT, "temperature": 0, "max_tokens": None, "echo": None})
    assert reply.json()["usage"]["completion_tokens"] == 16
    assert not reply.json()["choices"][0]["text"].startswith(PROMPT)


def test_each_of_several_texts_has_the_prompts(client: httpx.Client) -> None:
    body = {**BODY, "prompt": [PROMPT, "The old"], "temperature": 1, "n": 2, "echo": True, "max_tokens": 2}
    told = client.post("/v1/completions", json=body).json()["choices"]
    alone = [choice(client, {**BODY, "prompt": one, "echo": True, "max_tokens": 1}) for one in body["prompt"]]
    for i, one in enumerate(told):
        of_prompt = {name: values[:-1] for name, values in alone[i // 2]["logprobs"].items()}
        length = len(of_prompt["tokens"])
        assert {name: values[:length] for name, values in one["logprobs"].items()} == of_prompt
    reply = client.post("/v1/completions", json={**body, "stream": True})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "n"


@pytest.mark.parametrize("interval", [0, 1])
def test_an_echo_that_is_resumed_has_the_prompts_once(client: httpx.Client, llm: LLM, interval: int) -> None:
    ids = list(llm.generate(PROMPT, SamplingParams(max_tokens=24)).token_ids)
    body = {**BODY, "echo": True, "resume_token_ids": [ids[:5]]}
    whole = choice(client, body)["logprobs"]
    assert whole["tokens"][:3] == ["It", " was", " late"]
    for name, values in whole.items():
        assert streamed(client, {**body, "stream_interval": interval}, name) == values
