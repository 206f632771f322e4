"""Streams to the byte: what is written is fixed by a form, ids and times are replaced, and the rest must be as in the
files of `golden`. Run with OUTDRAFT_WRITE_GOLDEN=1 to write them anew, and read what has changed.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.chatty import HELLO, WEATHER

GOLDEN = Path(__file__).parent / "golden"
TEXT = "día 夜 🏳️‍🌈."
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
THOUGHT = f"<think>\nhm\n</think>\n\nLook.\n{CALL}\n{CALL}"
STILL = {"chat_template_kwargs": {"enable_thinking": False}}
USAGE = {"stream_options": {"include_usage": True}}
TOOL = {"type": "function", **WEATHER["function"]}
BY_TOKEN = {"stream": True, "stream_interval": 1, "speculative": False, "temperature": 0}
PATHS = {"completion": "/v1/completions", "chat": "/v1/chat/completions", "response": "/v1/responses"}


def body(kind: str, text: str, **more: Any) -> dict[str, Any]:
    """A request whose answer is this text."""
    limit = {"max_output_tokens" if kind == "response" else "max_tokens": 120}
    asked = {
        "completion": {"prompt": "Say"},
        "chat": {"messages": HELLO, **STILL},
        "response": {"input": "Hello", **STILL},
    }
    return {**BY_TOKEN, **asked[kind], **limit, "structured_outputs": {"choice": [text]}, **more}


def forced(kind: str, text: str, **more: Any) -> dict[str, Any]:
    """A request whose answer begins with this text, which may hold marks."""
    asked = body(kind, "", forced_prefix=text, **more)
    return {name: value for name, value in asked.items() if name != "structured_outputs"}


def thinking(kind: str, **more: Any) -> dict[str, Any]:
    """A thought, a text and two calls; then the limit is reached."""
    tools = {"tools": [TOOL if kind == "response" else WEATHER]}
    return {**forced(kind, THOUGHT, **tools, **more), "chat_template_kwargs": {"enable_thinking": True}}


CASES = {
    "completion": body("completion", TEXT, **USAGE),
    "chat": body("chat", TEXT, **USAGE),
    "chat_tools": thinking("chat", **USAGE),
    "response": body("response", TEXT),
    "response_tools": thinking("response"),
}
_ID = re.compile(rb"\b(cmpl-|chatcmpl-|resp_|msg_|rs_|fc_|call_)[0-9a-f]{24,32}\b")
_VARIES = (
    (rb'"(created|created_at|completed_at)":\d+', rb'"\1":0'),
    (rb'"metrics":\{"speculative_decoding":\{.*?\}\]?\},"speculative":\{.*?\}', rb'"metrics":0,"speculative":0'),
)


@pytest.fixture
def http(place: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=place, timeout=60) as made:
        yield made


def streamed(http: httpx.Client, kind: str, asked: dict[str, Any]) -> bytes:
    reply = http.post(PATHS[kind.partition("_")[0]], json=asked)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    return reply.content


def settled(stream: bytes) -> bytes:
    """Ids by their order, no times and no statistics."""
    seen: list[bytes] = []

    def named(found: re.Match[bytes]) -> bytes:
        if found[0] not in seen:
            seen.append(found[0])
        return found[1] + str(seen.index(found[0])).encode()

    stream = _ID.sub(named, stream)
    for pattern, put in _VARIES:
        stream = re.sub(pattern, put, stream)
    return stream


@pytest.mark.parametrize("name", CASES)
def test_a_stream_to_the_byte(http: httpx.Client, name: str) -> None:
    path, asked = GOLDEN / f"{name}.sse", CASES[name]
    if "forced_prefix" in asked:
        size = http.post("/tokenize", json={"prompt": asked["forced_prefix"]}).json()["count"]
        asked = {**asked, "max_output_tokens" if "input" in asked else "max_tokens": size}
    found = settled(streamed(http, name, asked))
    if os.environ.get("OUTDRAFT_WRITE_GOLDEN"):
        path.write_bytes(found)
    assert found.decode() == path.read_text(encoding="utf-8")


def pieces(stream: bytes) -> list[Any]:
    """The data of all events; the last one of a chat or a completion is a text."""
    assert stream.endswith(b"\n\n")
    blocks = stream.decode().removesuffix("\n\n").split("\n\n")
    data = [block.rpartition("data: ")[2] for block in blocks]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def texts(kind: str, stream: bytes) -> list[str]:
    """What each event adds to the text."""
    told = pieces(stream)
    if kind == "response":
        return [one["delta"] for one in told if one["type"] == "response.output_text.delta"]
    choices = [choice for one in told[:-1] for choice in one["choices"]]
    return [one["text"] if kind == "completion" else one["delta"].get("content", "") for one in choices]


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_usage_comes_once_and_nothing_after_the_end(http: httpx.Client, kind: str) -> None:
    asked = {**body(kind, ""), "structured_outputs": None, "temperature": 1, "seed": 1, "n": 2, "speculative": None}
    asked["max_tokens"] = 24
    *chunks, last, end = pieces(streamed(http, kind, {**asked, **USAGE}))
    assert end == "[DONE]" and last["choices"] == [] and last["usage"]["completion_tokens"] > 0
    assert all(one["usage"] is None and len(one["choices"]) == 1 for one in chunks)
    assert {one["choices"][0]["index"] for one in chunks} == {0, 1}
    for index in range(2):
        ended = [one["choices"][0]["finish_reason"] for one in chunks if one["choices"][0]["index"] == index]
        assert ended[-1] is not None and ended[:-1] == [None] * (len(ended) - 1)
    *chunks, end = pieces(streamed(http, kind, asked))
    assert end == "[DONE]" and all("usage" not in one and one["choices"] for one in chunks)


def test_a_response_ends_with_the_whole_of_it(http: httpx.Client) -> None:
    told = pieces(streamed(http, "response", body("response", TEXT)))
    assert told[-1]["type"] == "response.completed" and not any(one == "[DONE]" for one in told)


@pytest.mark.parametrize("interval", [0, 1, 2])
@pytest.mark.parametrize("kind", PATHS)
def test_a_character_is_never_split(http: httpx.Client, kind: str, interval: int) -> None:
    shown = texts(kind, streamed(http, kind, body(kind, TEXT, stream_interval=interval)))
    assert "".join(shown) == TEXT and not any("\ufffd" in one for one in shown)


@pytest.mark.parametrize("interval", [0, 1, 3])
@pytest.mark.parametrize("kind", PATHS)
def test_a_stop_string_is_never_shown_in_part(http: httpx.Client, kind: str, interval: int) -> None:
    """STO may begin STOP and does not; STOP ends the text."""
    asked = body(kind, "a STO, a STO STOP b", stop=["STOP"], stream_interval=interval)
    shown, so_far = texts(kind, streamed(http, kind, asked)), ""
    assert "".join(shown) == "a STO, a STO "
    for one in shown:  # what may begin it is shown when it is known that it does not
        so_far += one
        assert not so_far.endswith(("S", "ST", "STO"))


@pytest.mark.parametrize("kind", ["chat", "response"])
def test_deltas_of_calls_join_to_valid_json(http: httpx.Client, kind: str) -> None:
    tools = {"tools": [TOOL if kind == "response" else WEATHER], "tool_choice": "required"}
    for seed in (0,) if kind == "chat" else (1,):
        asked = {**body(kind, "", **tools), "structured_outputs": None, "temperature": 1, "seed": seed}
        joined: dict[Any, str] = {}
        for one in pieces(streamed(http, kind, asked)):
            if kind == "response" and one["type"] == "response.function_call_arguments.delta":
                joined[one["item_id"]] = joined.get(one["item_id"], "") + one["delta"]
            for call in one["choices"][0]["delta"].get("tool_calls", []) if kind == "chat" and one != "[DONE]" else []:
                joined[call["index"]] = joined.get(call["index"], "") + call["function"]["arguments"]
        assert joined and all(json.loads(text)["city"] in ("Rome", "Bern", "Oslo") for text in joined.values())
