"""Errors name the field at fault where it stands in the request, in the words of the request."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai.types.chat.completion_create_params as of_chats
import openai.types.completion_create_params as of_completions
import openai.types.responses.response_create_params as of_responses
import pytest

from outdraft import LLM
from tests.server.chatty import HELLO, QWEN, WEATHER, served, write_model

CHAT, RESPONSES, GENERATE = "/v1/chat/completions", "/v1/responses", "/inference/v1/generate"
NEEDED: dict[str, dict[str, Any]] = {  # of a request
    CHAT: {"messages": HELLO},
    RESPONSES: {"input": "Hello"},
    GENERATE: {"token_ids": [5]},
    "/v1/completions": {"prompt": "Hello"},
}
STILL = {"chat_template_kwargs": {"enable_thinking": False}}
STRICT = "{% if messages[0].role != 'user' %}{{ raise_exception('no user') }}{% endif %}" + QWEN
FOREIGN = ["kv_transfer_params", "session_id", "thinking_token_budget", "include_reasoning", "truncation_side"]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A model whose template wants a user first."""
    path = write_model(tmp_path_factory.mktemp("model") / "strict", STRICT)
    with LLM(path, drafter="none") as llm, served(llm) as address, httpx.Client(base_url=address, timeout=60) as made:
        yield made


def refused(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    reply = client.post(path, json={**NEEDED[path], **body})
    assert reply.status_code == 400, reply.text
    return dict(reply.json()["error"])


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        (CHAT, {"chat_template_kwargs": {"9": 1}}, "chat_template_kwargs.9", "does not use it"),
        (RESPONSES, {"chat_template_kwargs": {"type": 1}}, "chat_template_kwargs.type", "does not use it"),
        (CHAT, {"messages": [{"role": "assistant", "content": "x"}]}, "messages", "refuses this conversation: no user"),
        (RESPONSES, {"input": [{"role": "assistant", "content": "x"}]}, "input", "refuses this conversation: no user"),
        (CHAT, {"structured_outputs": {"regex": "("}}, "structured_outputs", "regex of structured_outputs cannot"),
        (CHAT, {"tools": [{"type": "custom", "custom": {}}]}, "tools.0", "type 'custom' is not for this server"),
        (CHAT, {"tool_choice": {"type": "allowed_tools"}}, "tool_choice", "name a function, or send none"),
        (RESPONSES, {"tool_choice": {"type": "allowed_tools"}}, "tool_choice", "name a function, or send none"),
        (RESPONSES, {"stream_options": {"include_obfuscation": False}}, "stream_options", "is for a stream"),
        (
            CHAT,
            {"tools": [WEATHER], "tool_choice": "required", "structured_outputs": {"choice": ["a"]}, **STILL},
            "tool_choice",
            "and structured_outputs for another text",
        ),
    ],
)
def test_a_conversation(strict: httpx.Client, path: str, body: dict[str, Any], param: str, says: str) -> None:
    error = refused(strict, path, **body)
    assert error["param"] == param and says in error["message"]
    assert "start:" not in error["message"], "a grammar that the server has written means nothing to the client"


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 1e9), ("n", 65), ("min_tokens", 50), ("stop_token_ids", [9999]), ("structured_outputs", {})],
)
def test_a_sampling_setting_of_token_ids(client: httpx.Client, name: str, value: Any) -> None:
    """Whether the schema, the settings or the engine refuse it."""
    error = refused(client, GENERATE, sampling_params={name: value})
    assert error["param"] == f"sampling_params.{name}"


def test_a_message_that_a_transcript_does_not_show(client: httpx.Client) -> None:
    assert refused(client, CHAT, messages=[{**HELLO[0], "name": "Ann"}])["param"] == "messages"


def test_the_name_of_a_variable_is_cut(strict: httpx.Client, client: httpx.Client) -> None:
    for one in (strict, client):
        error = refused(one, CHAT, chat_template_kwargs={"m" * 100_000: 1})
        assert len(error["message"]) < 300 and len(error["param"]) < 130


def test_the_size_of_a_form_is_in_bytes(client: httpx.Client) -> None:
    error = refused(client, CHAT, structured_outputs={"regex": "漢" * 30_000})
    assert "longer than 65536 bytes" in error["message"]
    form = {"type": "json_schema", "json_schema": {"name": "a" * 257, "schema": {}}}
    assert refused(client, CHAT, response_format=form)["param"] == "response_format.json_schema.name"


@pytest.mark.parametrize("name", ["return_token_ids", "return_draft_tree", "ignore_eos", "priority"])
def test_null_is_the_default(client: httpx.Client, name: str) -> None:
    body = {"messages": HELLO, "max_tokens": 1, "stream": True, "stream_options": {"include_usage": None}, name: None}
    assert client.post(CHAT, json=body).status_code == 200


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (CHAT, of_chats.CompletionCreateParamsBase.__annotations__),
        ("/v1/completions", of_completions.CompletionCreateParamsBase.__annotations__),
        (RESPONSES, of_responses.ResponseCreateParamsBase.__annotations__),
        (CHAT, FOREIGN),
    ],
)
def test_a_field_of_other_servers_may_say_nothing(client: httpx.Client, path: str, names: Any) -> None:
    """All fields of OpenAI's client are known, and those that vLLM's clients send."""
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    reply = client.post(path, json={**dict.fromkeys(names), **NEEDED[path], limit: 1})
    assert reply.status_code == 200, reply.text
