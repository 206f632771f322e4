"""A conversation, its tools and the variables of its template have limits in number, in bytes and in levels."""

from typing import Any

import httpx
import pytest
from serving import serving

from outdraft import LLM
from tests.server.chatty import CLOCK, HELLO, WEATHER

USER = {"role": "user", "content": "a"}
SAID = {"role": "assistant", "content": "a"}


def tools(count: int, **more: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": f"f{i}", **more}} for i in range(count)]


def calls(count: int) -> list[Any]:
    return [{"id": str(i), "function": {"name": "f", "arguments": "{}"}} for i in range(count)]


def deep(levels: int) -> Any:
    made: Any = {}
    for _ in range(levels):
        made = {"a": [made]}
    return made


PARTS = [{"type": "text", "text": "a"}] * 5000
TOO_MUCH = [
    ({"messages": [USER] * 4097}, "messages", "it has 4097, and 4096 are taken"),
    ({"messages": [{}] * 120_000}, "messages", "it has 120000"),
    ({"messages": [USER, {"role": "user", "content": PARTS}]}, "messages", "it has 5002"),
    ({"messages": [USER, {**SAID, "tool_calls": calls(5000)}]}, "messages", "it has 5002"),
    ({"messages": [{**USER, "name": "x" * 257}]}, "messages.0.name", "at most 256 characters"),
    (
        {"messages": [USER, {"role": "tool", "content": "a", "tool_call_id": "x" * 4097}]},
        "messages.1.tool_call_id",
        "at most 4096 characters",
    ),
    ({"messages": HELLO, "tools": tools(1025)}, "tools", "it has 1025 entries, and 1024 are taken"),
    ({"messages": HELLO, "tools": tools(10_000)}, "tools", "it has 10000 entries"),
    ({"messages": HELLO, "tools": tools(1, description="x" * 300_000)}, "tools", "and 262144 are taken: send less"),
    ({"messages": HELLO, "tools": tools(1, parameters=deep(70))}, "tools", "deeper than 128 levels"),
    ({"messages": HELLO, "tools": [CLOCK, WEATHER, CLOCK]}, "tools", "clock stands there twice"),
    (
        {"messages": HELLO, "chat_template_kwargs": {f"a{i}": 1 for i in range(65)}},
        "chat_template_kwargs",
        "65 entries, and 64 are taken",
    ),
    (
        {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": "x" * 300_000}},
        "chat_template_kwargs",
        "as JSON it has 300",
    ),
    ({"messages": HELLO, "chat_template_kwargs": {"enable_thinking": deep(70)}}, "chat_template_kwargs", "128 levels"),
    ({"messages": HELLO, "chat_template": "x" * 131_073}, "chat_template", "at most 131072 characters"),
    ({"messages": HELLO, "reasoning_effort": "x" * 257}, "reasoning_effort", "at most 256 characters"),
    ({"messages": HELLO, "prediction": {"type": "content", "content": PARTS}}, "prediction", "at most 4096 items"),
]


@pytest.fixture(scope="module")
def http(chat_llm: LLM) -> Any:
    with serving(chat_llm) as (address, _), httpx.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.mark.parametrize(("body", "param", "says"), TOO_MUCH, ids=lambda one: str(one)[:40])
def test_too_much_is_refused_in_one_sentence(http: httpx.Client, body: Any, param: str, says: str) -> None:
    reply = http.post("/v1/chat/completions", json={**body, "max_tokens": 1})
    error = reply.json()["error"]
    assert reply.status_code == 400 and says in error["message"] and len(error["message"]) < 400, error["message"]
    assert error["param"].startswith(param)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"messages": [USER] * 4097}),
        ("/tokenize", {"messages": HELLO, "tools": tools(1025)}),
        ("/tokenize", {"messages": HELLO, "chat_template_kwargs": deep(70)}),
        ("/v1/responses", {"input": [USER] * 4097}),
        ("/v1/responses", {"input": [{**USER, "content": [{"type": "input_text", "text": "a"}] * 4097}]}),
        ("/v1/responses", {"input": "a", "tools": [{"type": "function", "name": f"f{i}"} for i in range(1025)]}),
        ("/v1/responses", {"input": "a", "chat_template_kwargs": deep(70)}),
    ],
)
def test_the_other_endpoints_have_the_same_limits(http: httpx.Client, path: str, body: Any) -> None:
    assert http.post(path, json=body).status_code == 400


def test_what_is_just_small_enough_is_read(http: httpx.Client) -> None:
    for body in (
        {"messages": [USER] * 4096},
        {"messages": HELLO, "tools": tools(1024)},
        {"messages": HELLO, "tools": tools(1, parameters={"type": "object", "x": deep(61)})},
    ):
        reply = http.post("/tokenize", json=body)
        assert reply.status_code == 200, reply.text


def test_a_tool_that_is_not_there_is_refused_with_its_near_miss(http: httpx.Client) -> None:
    choice = {"type": "function", "function": {"name": "f1x"}}
    body = {"messages": HELLO, "tools": tools(1000), "tool_choice": choice}
    message = http.post("/v1/chat/completions", json=body).json()["error"]["message"]
    assert "did you mean 'f1'?" in message and len(message) < 300


BROKEN = [
    "{{ x.y.z }}",
    "{{ messages[9].content }}",
    "{{ raise_exception('no') }}",
    "{{ 1 // 0 }}",
    "{% for a in messages %}{{ a.content.b() }}{% endfor %}",
]


@pytest.mark.parametrize("template", BROKEN)
def test_a_template_that_breaks_is_one_sentence(chat_llm: LLM, template: str) -> None:
    with serving(chat_llm, trust_request_chat_template=True) as (address, _):
        body = {"messages": HELLO, "chat_template": template, "max_tokens": 1}
        reply = httpx.post(f"{address}/v1/chat/completions", json=body)
    message = reply.json()["error"]["message"]
    assert reply.status_code == 400 and "\n" not in message
    assert message.startswith("the chat template refuses this conversation") or "empty" in message
