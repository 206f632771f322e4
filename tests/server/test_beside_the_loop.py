"""No work of one request, however much it asks for, keeps the event loop from the others."""

import asyncio
import threading
from typing import Any

import httpx
import pytest

from outdraft import LLM
from outdraft.engine.callers import answers
from outdraft.engine.callers.writer import Writer
from outdraft.server.endpoints.answering import ReplyShape
from outdraft.server.endpoints.chat import ChatShape
from outdraft.server.endpoints.completions import Completion
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings

COMPLETION: dict[str, Any] = {"prompt": "It was late when", "max_tokens": 24, "temperature": 1, "seed": 1}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 24, "temperature": 1, "seed": 1}
MANY = {"n": 8, "ignore_eos": True}


def threads(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> set[str]:
    """The names of the threads that run this function from now on."""
    found, run = set[str](), getattr(owner, name)

    def noted(*given: Any, **words: Any) -> Any:
        found.add(threading.current_thread().name)
        return run(*given, **words)

    monkeypatch.setattr(owner, name, noted)
    return found


def ask(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("body", [COMPLETION, COMPLETION | {"stream": True}])
def test_a_request_is_checked_beside_it(
    client: httpx.Client, llm: LLM, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    """As forms, lists of ids and what was written before a cut may be long."""
    on_loop, checked = threads(monkeypatch, Completion, "__init__"), threads(monkeypatch, llm.engine, "prepare")
    ask(client, "/v1/completions", body)
    assert on_loop and checked and not on_loop & checked


@pytest.mark.parametrize(
    ("path", "shape", "little", "much"),
    [
        ("/v1/completions", Completion, COMPLETION | MANY, {"logprobs": 20}),
        ("/v1/completions", Completion, COMPLETION, {"echo": True, "prompt": ["It was late when " * 200] * 3}),
        ("/v1/completions", Completion, COMPLETION, {"prompt_logprobs": 20, "prompt": "It was late when " * 60}),
        ("/v1/chat/completions", ChatShape, CHAT | MANY, {"logprobs": True, "top_logprobs": 20}),
    ],
    ids=["log probabilities", "an echo", "of the prompt", "of a chat"],
)
def test_a_large_reply_is_written_beside_it(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, shape: type[ReplyShape], little: Any, much: Any
) -> None:
    """And a small one at once."""
    on_loop, wrote = threads(monkeypatch, shape, "__init__"), threads(monkeypatch, shape, "whole")
    ask(client, path, little)
    assert wrote == on_loop
    wrote.clear()
    ask(client, path, little | much)
    assert wrote == {"outdraft-long-texts_0"}


def test_a_large_piece_is_written_beside_it(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop, wrote = threads(monkeypatch, Completion, "__init__"), threads(monkeypatch, Completion, "piece")
    ask(client, "/v1/completions", COMPLETION | {"stream": True})
    assert wrote == on_loop
    wrote.clear()
    large = {"stream": True, "echo": True, "logprobs": 20, "prompt": "It was late when " * 60}
    ask(client, "/v1/completions", COMPLETION | large)
    assert wrote == on_loop | {"outdraft-long-texts_0"}


def test_long_texts_are_decoded_beside_it(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop, decoded = threads(monkeypatch, Completion, "__init__"), threads(monkeypatch, Writer, "push")
    ask(client, "/v1/completions", COMPLETION)
    assert decoded == on_loop
    decoded.clear()
    monkeypatch.setattr(answers, "_MUCH", 16)
    ask(client, "/v1/completions", COMPLETION | {"ignore_eos": True})
    assert decoded and not decoded & on_loop


def test_the_last_step_is_waited_for_beside_it(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a server ends, it still answers that it does."""
    service, closed = Service(llm, ServerSettings(served_model_name=("target",), drain_timeout=0)), list[str]()
    monkeypatch.setattr(llm, "close", lambda: closed.append(threading.current_thread().name))
    service._idle.clear()  # a request is under way
    asyncio.run(service.drain())
    service.stop_listening()
    assert closed and closed != [threading.current_thread().name]
