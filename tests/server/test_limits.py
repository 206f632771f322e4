"""What one request may ask for: sizes, tokens, time, forms. One that asks for more gets one clear error."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from serving import serving

from outdraft import LLM
from outdraft.options.errors import ConfigError
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.schema.completions import CompletionRequest
from outdraft.server.schema.responses import ResponsesRequest
from outdraft.server.schema.tokens import GenerateRequest, TokenizeRequest
from outdraft.server.settings import ServerSettings
from tests.server.chatty import HELLO

http = httpx.Client(timeout=60)
RECURSIVE = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
PROMPT = "It was late when"
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"prompt": PROMPT}),
    "chat": ("/v1/chat/completions", {"messages": HELLO}),
    "generate": ("/inference/v1/generate", {"token_ids": [1]}),
}
SCHEMAS = {
    one.__name__: one for one in (CompletionRequest, ChatRequest, ResponsesRequest, TokenizeRequest, GenerateRequest)
}


@pytest.fixture(scope="module")
def limited(llm: LLM) -> Iterator[str]:
    with serving(llm, max_prompts=2, max_texts=3, max_tokens=5, max_schema_bytes=1024) as (address, _):
        yield address


def deep(levels: int) -> dict[str, Any]:
    form: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        form = {"type": "object", "properties": {"a": form}}
    return form


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"prompt": [PROMPT] * 3}, "3 prompts are more than the 2 of one request"),
        ({"n": 4}, "more than 3 texts"),
        ({"prompt": [PROMPT] * 2, "n": 2}, "more than 3 texts"),
        ({"structured_outputs": {"regex": "a" * 2000}}, "longer than 1024 bytes"),
        ({"structured_outputs": {"json": deep(80)}}, "longer than 1024 bytes"),
        ({"structured_outputs": {"json": RECURSIVE}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "x{12000000}"}}, "12000000 letters, its repetitions multiplied out: 1000000"),
        ({"structured_outputs": {"grammar": 'start: a{5000}\na: "x"~5000'}}, "25000000 letters"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "x"}}, "send one"),
        ({"structured_outputs": {"grammar": "start: a\na: b\nb: a"}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"$ref": "file:///etc/passwd"}}}, "structured_outputs"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"stop": "x" * 257}, "stop='xxx"),
        ({"stop": ["a", "x" * 257]}, "stop.1='xxx"),
        ({"bad_words": ["x" * 257]}, "bad_words.0='xxx"),
        ({"bad_words": ["x"] * 1025}, "bad_words"),
        ({"bad_words": ["x" * 255 + chr(97 + i % 26) + str(i) for i in range(400)]}, "bad_words"),
        ({"bad_words": [f"{i} {'x' * 240}" for i in range(300)]}, "characters and tokens in all, and 65536 are taken"),
        ({"request_id": "x" * 129}, "request_id='xxx"),
        ({"request_id": "two words"}, "request_id='two words'"),
        ({"user": "x" * 257}, "user='xxx"),
        ({"cache_salt": "x" * 257}, "cache_salt='xxx"),
        ({"metadata": {"a": "x" * 20000}}, "as JSON it has 20008 bytes, and 16384 are taken"),
        ({"metadata": {"a": json.loads("[" * 300 + "]" * 300)}}, "nested too deeply"),
        ({"references": ["x"] * 257}, "references"),
        ({"forced_prefix": "x" * 65_537}, "forced_prefix='xxx"),
        ({"banned_token_ids": [1] * 65_537}, "banned_token_ids"),
        ({"resume_token_ids": [[5] * 1_048_577]}, "131,072 values"),
        ({"logit_bias": dict.fromkeys(map(str, range(4097)), 1.0)}, "it has 4097 tokens, and 4096 are taken"),
        ({"logit_bias": {"5": 1.0, "6": "a", "7": "b"}}, "'6' has 'a', which is no number"),
        ({"prompt": [None] * 100_000}, "prompt"),
        ({"prompt_logprobs": 21}, "prompt_logprobs=21"),
        ({"logprobs": 21}, "logprobs=21"),
        ({"speculative": 0}, "speculative=0"),
        ({"prompt": "word " * 5000}, "shorten the prompt"),
    ],
)
def test_too_much_is_refused(limited: str, body: dict[str, Any], says: str) -> None:
    reply = http.post(f"{limited}/v1/completions", json={"prompt": PROMPT, **body})
    assert reply.status_code == 400, reply.text
    assert says in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        ("completions", {"logit_bias": {"-1": 1}}, "logit_bias", "logit_bias names token -1"),
        ("completions", {"stop_token_ids": [5000]}, "stop_token_ids", "stop_token_ids names token 5000"),
        ("completions", {"forced_prefix": "x y " * 20}, "forced_prefix", "tokens, more than max_tokens="),
        ("completions", {"banned_token_ids": [*range(4096)]}, "banned_token_ids", "forbids all 4096 tokens"),
        ("completions", {"prompt": ""}, "prompt", "the prompt is empty"),
        ("completions", {"prompt": [1, 5000]}, "prompt", "the prompt has token id 5000"),
        ("completions", {"negative_prompt": [5000], "guidance_scale": 2}, "negative_prompt", "the negative prompt has"),
        ("completions", {"resume_token_ids": [[1], [2]]}, "resume_token_ids", "resume_token_ids has 2 lists"),
        ("generate", {"token_ids": [5000]}, "token_ids", "the prompt has token id 5000"),
        ("completions", {"max_tokens": 60, "min_tokens": 50}, "min_tokens", "at most 5 (the server's --max-tokens)"),
        ("completions", {"max_tokens": 60, "forced_prefix": "x y " * 20}, "forced_prefix", "--max-tokens)"),
        ("chat", {"min_tokens": 50}, "min_tokens", "at most 5 (the server's --max-tokens)"),
        ("completions", {"prompt": [[1, 2], [1, 2], [1, 2], "a"]}, "prompt.3", "prompt.3='a': input should be a valid"),
        ("completions", {"prompt": ["a", [1]]}, "prompt.1", "prompt.1=[1]: input should be a valid string"),
        ("completions", {"prompt": [5, "a"]}, "prompt.1", "prompt.1='a': input should be a valid integer"),
        ("completions", {"prompt": [[1, 2], [1, "a"]]}, "prompt.1.1", "prompt.1.1='a'"),
        ("completions", {"prompt": [1, -1]}, "prompt.1", "greater than or equal to 0"),
    ],
)
def test_the_field_at_fault_is_named(limited: str, path: str, body: dict[str, Any], param: str, says: str) -> None:
    where, own = PATHS[path]
    reply = http.post(limited + where, json={**own, **body})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], says in error["message"]) == (400, param, True), error


def test_a_limit_of_the_request_itself_is_not_called_the_servers(limited: str) -> None:
    body = {"prompt": PROMPT, "max_tokens": 3, "forced_prefix": "x y " * 20}
    assert "--max-tokens" not in http.post(f"{limited}/v1/completions", json=body).json()["error"]["message"]


def test_what_is_read_when_the_server_ends_is_refused_as_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM("zoo:target", drafter="none") as llm, serving(llm) as (address, service):
        opens = llm.open

        async def ends(*given: Any, **named: Any) -> Any:
            service.state = "draining"
            llm.close()
            return await opens(*given, **named)

        monkeypatch.setattr(llm, "open", ends)
        reply = http.post(f"{address}/v1/completions", json={"prompt": PROMPT})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "draining")


def test_answers_have_at_most_so_many_tokens(limited: str) -> None:
    reply = http.post(f"{limited}/v1/completions", json={"prompt": PROMPT, "max_tokens": 90, "ignore_eos": True}).json()
    assert reply["usage"]["completion_tokens"] == 5 and reply["choices"][0]["finish_reason"] == "length"


def test_special_tokens_alone_are_a_prompt(limited: str) -> None:
    for prompt in ("<|endoftext|>" * 40, "\x00\x01", "\u202e\ufeff", "🏳️‍🌈" * 20, [0, 0, 0]):
        assert http.post(f"{limited}/v1/completions", json={"prompt": prompt, "max_tokens": 2}).is_success


def test_a_request_ends_when_its_time_is_over(llm: LLM) -> None:
    with serving(llm, timeout=0.001) as (address, _):
        choice = http.post(f"{address}/v1/completions", json={"prompt": PROMPT, "max_tokens": 900}).json()["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", "timeout")


MANY = pytest.mark.parametrize(
    "more", [{}, {"stream": True}, {"prompt": PROMPT, "n": 2}], ids=["whole", "stream", "choices"]
)


@MANY
def test_too_many_waiting_requests_are_asked_to_come_later(
    more: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Before anything is written, and without a word in the log's errors; they are no texts that are over."""
    with LLM("zoo:target", drafter="none", max_num_seqs=1, max_num_waiting=1) as llm, serving(llm) as (address, _):
        ran, step = set(), llm.engine.step

        def noted() -> Any:
            ran.update(seq.id for seq in (*llm.engine.waiting, *llm.engine.running))
            return step()

        llm.engine.step = noted  # type: ignore[method-assign]
        body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True}
        with http.stream("POST", f"{address}/v1/completions", json=body) as running:
            pieces = running.iter_raw()
            next(pieces)
            asked = {"prompt": [PROMPT] * 2, "max_tokens": 20, "ignore_eos": True, **more}
            reply = http.post(f"{address}/v1/completions", json=asked)
            assert reply.status_code == 503 and reply.headers["retry-after"] == "1"
            assert reply.json()["error"]["code"] == "overloaded"
            assert len(ran) == 1  # the text that had room is not written for no client
            name = 'outdraft:request_success_total{finished_reason="abort",model_name="target"}'
            assert f"{name} 0.0" in http.get(f"{address}/metrics").text
        assert http.post(f"{address}/v1/completions", json={"prompt": PROMPT, "max_tokens": 2}).is_success
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


@MANY
def test_a_request_that_never_fits_is_not_asked_to_come_later(more: dict[str, Any]) -> None:
    with LLM("zoo:target", drafter="none", max_num_seqs=1, max_num_waiting=0) as llm, serving(llm) as (address, _):
        reply = http.post(f"{address}/v1/completions", json={"prompt": [PROMPT] * 2, "max_tokens": 2, **more})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "n"
        assert "2 texts of one request" in reply.json()["error"]["message"]
        assert http.post(f"{address}/v1/completions", json={"prompt": PROMPT, "max_tokens": 2}).is_success


def test_no_time_at_all_is_no_limit() -> None:
    with pytest.raises(ConfigError, match=r"timeout=0.*must be at least 0.001"):
        ServerSettings(served_model_name=("m",), timeout=0)


LISTS = [
    ("CompletionRequest", {"prompt": [None] * 50}),
    ("CompletionRequest", {"prompt": "x", "references": [None] * 50}),
    ("CompletionRequest", {"prompt": [["x"] * 50] * 50}),
    ("CompletionRequest", {"prompt": "x", "stop": [1] * 50}),
    ("ChatRequest", {"messages": [{}] * 50}),
    ("ChatRequest", {"messages": HELLO, "tools": [{}] * 50}),
    ("ResponsesRequest", {"input": [{}] * 50}),
    ("TokenizeRequest", {"messages": [1] * 50}),
    ("GenerateRequest", {"token_ids": ["x"] * 50}),
]


@pytest.mark.parametrize(("name", "body"), LISTS)
def test_a_list_is_wrong_at_its_first_wrong_element(name: str, body: dict[str, Any]) -> None:
    """An error for each of a million elements would take all memory."""
    with pytest.raises(ValidationError) as raised:
        SCHEMAS[name].model_validate(body)
    assert raised.value.error_count() < 10
