"""Token ids in and out: /tokenize, /detokenize, /inference/v1/generate."""

import json
from typing import Any

import httpx
import pytest

from outdraft import LLM, SamplingParams
from tests.server.chatty import events

TEXT = "It was late when the día — 夜 — began"


def test_ids_go_back_to_the_text(client: httpx.Client, llm: LLM) -> None:
    read = client.post("/tokenize", json={"model": "target", "prompt": TEXT, "return_token_strs": True}).json()
    assert read["tokens"] == list(llm.encode(TEXT)) and read["count"] == len(read["tokens"]) == len(read["token_strs"])
    assert read["max_model_len"] == llm.config["max_model_len"]
    assert client.post("/detokenize", json={"tokens": read["tokens"]}).json() == {"prompt": TEXT}


def test_special_tokens_stand_by_their_names(client: httpx.Client, llm: LLM) -> None:
    (special,) = llm.get_tokenizer().special_ids
    ids = [special, *llm.get_tokenizer().encode("so", add_special=False), special]
    assert client.post("/detokenize", json={"tokens": ids}).json()["prompt"] == "<|endoftext|>so<|endoftext|>"
    assert client.post("/detokenize", json={"tokens": ids, "skip_special_tokens": True}).json()["prompt"] == "so"
    assert client.post("/detokenize", json={"tokens": []}).json()["prompt"] == ""


def test_a_conversation_is_read_as_it_is_answered(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "How are you?"}]
    read = client.post("/tokenize", json={"messages": messages}).json()["tokens"]
    reply = client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1, "return_token_ids": True})
    assert reply.json()["prompt_token_ids"] == read


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/tokenize", {}, "send one of prompt and messages"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "send one of prompt and"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": False}, "add_generation_prompt is for messages"),
        ("/tokenize", {"messages": [{"role": "user", "content": "b"}], "add_special_tokens": False}, "is for a prompt"),
        ("/tokenize", {"prompt": "a", "text": "b"}, "there is no field 'text'"),
        ("/detokenize", {"tokens": [10**9]}, "tokens has 1000000000, and the tokenizer knows ids below"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0=-1"),
        ("/detokenize", {"tokens": ["a"]}, "tokens.0='a'"),
        ("/inference/v1/generate", {"token_ids": []}, "token_ids=[]"),
        ("/inference/v1/generate", {"token_ids": [10**9]}, "token id 1000000000, outside the vocabulary"),
        ("/inference/v1/generate", {"token_ids": [1], "max_tokens": 3}, "there is no field 'max_tokens'"),
        ("/inference/v1/generate", {"token_ids": [1], "sampling_params": {"stream": True}}, "send it beside"),
        ("/inference/v1/generate", {"token_ids": [1], "sampling_params": {"user": "u"}}, "or leave it out"),
    ],
)
def test_what_is_refused(client: httpx.Client, path: str, body: dict[str, Any], says: str) -> None:
    reply = client.post(path, json=body)
    assert reply.status_code == 400
    assert says in reply.json()["error"]["message"]


def test_generate_writes_the_engines_ids(client: httpx.Client, llm: LLM) -> None:
    ids = list(llm.encode("It was late when"))
    settings = {"max_tokens": 12, "seed": 4, "logprobs": 1, "prompt_logprobs": 0, "n": 2}
    reply = client.post(
        "/inference/v1/generate", json={"token_ids": ids, "sampling_params": settings, "request_id": "r"}
    )
    told = reply.json()
    plain = llm.generate(
        {"prompt_token_ids": ids}, SamplingParams(max_tokens=12, seed=4, temperature=1.0, n=2), num_speculative_tokens=0
    )
    assert [one["token_ids"] for one in told["choices"]] == [list(text.token_ids) for text in plain.outputs]
    assert told["request_id"] == "r" and told["usage"]["completion_tokens"] == 24
    entry = told["choices"][0]["logprobs"]["content"][0]
    assert entry["token"] == f"token_id:{plain.token_ids[0]}" and len(entry["top_logprobs"]) == 1
    assert len(told["prompt_logprobs"]) == len(ids) and told["prompt_logprobs"][0] is None
    assert "text" not in reply.text


def test_generate_streams_the_same_ids(client: httpx.Client, llm: LLM) -> None:
    ids = list(llm.encode("It was late when"))
    body = {
        "token_ids": ids,
        "sampling_params": {"max_tokens": 16, "temperature": 0},
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    lines = [line.removeprefix("data: ") for line in client.post("/inference/v1/generate", json=body).text.splitlines()]
    pieces = [json.loads(line) for line in lines if line and line != "[DONE]"]
    written = [token for piece in pieces for choice in piece["choices"] for token in choice["token_ids"]]
    assert written == list(llm.generate({"prompt_token_ids": ids}, SamplingParams(max_tokens=16)).token_ids)
    assert [line for line in lines if line][-1] == "[DONE]"
    assert pieces[-1]["choices"] == [] and pieces[-1]["usage"]["completion_tokens"] == 16
    assert len({piece["request_id"] for piece in pieces}) == 1


@pytest.mark.parametrize("count", [1, 2])
def test_a_chats_stream_tells_the_prompt_once(client: httpx.Client, count: int) -> None:
    """The answers begin with a part of a character, so that the first chunk of log probabilities has no text."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "How are you?"}],
        "max_tokens": 6,
        "n": count,
        "forced_prefix": "é",
    }
    told = {"prompt_logprobs": 1, "return_token_ids": True}
    whole = client.post("/v1/chat/completions", json={**body, **told}).json()
    for asked in (told, {"prompt_logprobs": 1}, {"return_token_ids": True}, {}):
        pieces = events(client, "/v1/chat/completions", {**body, **asked, "stream_interval": 1})
        for name, field in (("prompt_logprobs", "prompt_logprobs"), ("prompt_token_ids", "return_token_ids")):
            assert [one[name] for one in pieces if name in one] == ([whole[name]] if field in asked else [])
    assert whole["prompt_logprobs"] and whole["prompt_token_ids"]
