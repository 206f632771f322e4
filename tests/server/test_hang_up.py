"""Clients that go away, streams that are silent, a request that breaks: no other client notices, nothing is left."""

import asyncio
import gc
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from time import monotonic, sleep
from typing import Any
from weakref import ref

import httpx
import pytest
import torch
from serving import opened, serving

from lab.soak import runner_of
from outdraft import LLM, SamplingParams
from outdraft.engine.callers.answers import Answers
from outdraft.server.connection import EventStream
from outdraft.server.errors import ApiError
from outdraft.server.protocol import LimitedProtocol
from outdraft.server.service import Service

LONG = {"prompt": "It was late when", "max_tokens": 1000, "ignore_eos": True, "temperature": 1, "seed": 1}


@pytest.fixture(scope="module")
def served(llm: LLM) -> Iterator[tuple[str, Service]]:
    with serving(llm) as made:
        yield made


def sent(address: str, body: dict[str, Any]) -> Any:
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return opened(address, head.encode() + b"\r\n\r\n" + data)


def is_empty(service: Service) -> bool:
    engine = service.llm.engine
    return not service.num_under_way and not engine.has_work


def num_written(service: Service) -> int:
    """Tokens of all answers so far."""
    return int(next(iter(service.instruments.generation_tokens.collect())).samples[0].value)


def until(holds: Any) -> None:
    """Wait for it; a minute is more than it ever takes."""
    end = monotonic() + 60
    while not holds():
        assert monotonic() < end
        sleep(0.01)


@pytest.mark.parametrize("streams", [True, False])
def test_who_hangs_up_cancels(served: tuple[str, Service], llm: LLM, streams: bool) -> None:
    address, service = served
    before = num_written(service)
    connection = sent(address, LONG | {"stream": streams})
    until(lambda: llm.engine.running)
    if streams:
        assert b"data: " in connection.recv(65536) + connection.recv(65536)
    connection.close()
    until(lambda: is_empty(service))
    assert num_written(service) - before < 900, "it was written to the end for no client"


def test_who_hangs_up_before_the_first_byte_cancels(served: tuple[str, Service], llm: LLM) -> None:
    """The engine is held up until the client has gone, so nothing can have been sent."""
    address, service = served
    goes_on, holds, before = threading.Event(), threading.Event(), num_written(service)

    def hold(engine: Any) -> None:
        holds.set()
        goes_on.wait(30)

    waiter = threading.Thread(target=lambda: llm._thread.ask(hold))
    waiter.start()
    holds.wait(30)
    connection = sent(address, LONG | {"stream": True})
    until(lambda: service.num_under_way)
    connection.close()
    goes_on.set()
    waiter.join()
    until(lambda: is_empty(service))
    assert num_written(service) - before < 900, "it was written to the end for no client"
    assert llm.generate("It was late when", SamplingParams(max_tokens=3)).finish_reason == "length"


def test_who_hangs_up_in_the_middle_of_a_body_leaves_nothing(served: tuple[str, Service]) -> None:
    address, service = served
    opened(address, b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{").close()
    assert httpx.get(f"{address}/ready").is_success
    until(lambda: is_empty(service))


@pytest.mark.logs_faults
@pytest.mark.parametrize("streams", [True, False])
def test_numbers_that_are_none_cost_one_request(
    served: tuple[str, Service], llm: LLM, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One prompt's vectors are infinite; the other request is in the same passes."""
    address, service = served
    ask = llm.open

    async def planted(prompts: Any, params: Any, **more: Any) -> Any:
        if params.max_tokens == 9:
            count = len(llm.encode(prompts[0]))
            more["prompt_embeds"] = torch.full((count, runner_of(llm.engine.parts).hidden_size), torch.inf)
        return await ask(prompts, params, **more)

    monkeypatch.setattr(llm, "open", planted)
    other: list[dict[str, Any]] = []
    body = {"prompt": "The house", "max_tokens": 300, "temperature": 0, "ignore_eos": True}
    thread = threading.Thread(
        target=lambda: other.append(httpx.post(f"{address}/v1/completions", json=body, timeout=60).json())
    )
    thread.start()
    while not (llm.engine.running or other):  # it may be over before one looks again
        sleep(0.001)
    reply = httpx.post(f"{address}/v1/completions", json=LONG | {"max_tokens": 9, "stream": streams}, timeout=60)
    thread.join()
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    error = json.loads(lines[-2] if streams else lines[0])["error"]
    assert reply.status_code == (200 if streams else 500) and (lines[-1] == "[DONE]") == streams
    assert error["type"] == "server_error" and "Traceback" not in reply.text and error["message"]
    plain = llm.generate("The house", SamplingParams(max_tokens=300, ignore_eos=True), num_speculative_tokens=0)
    assert other[0]["choices"][0]["text"] == plain.text
    until(lambda: is_empty(service))


def test_a_silent_stream_sends_comments() -> None:
    """Two silences: no comment cancels the event that is waited for, and none is sent without a silence."""
    goes_on = asyncio.Event()
    pieces: list[bytes] = []

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await goes_on.wait()
        yield b"data: 2\n\n"
        raise ApiError(500, "it broke")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            pieces.append(message["body"])
            if pieces[-2:] == [b": keep-alive\n\n"] * 2:
                goes_on.set()

    async def receive() -> Any:
        await asyncio.Event().wait()

    closed: list[bool] = []
    stream = EventStream(events(), close=lambda: closed.append(True), keep_alive=0.02)
    asyncio.run(stream({"type": "http"}, receive, send))
    assert pieces[:3] == [b"data: 1\n\n", b": keep-alive\n\n", b": keep-alive\n\n"]
    assert pieces[3:4] == [b"data: 2\n\n"] and pieces[-2:] == [b"data: [DONE]\n\n", b""] and closed == [True]
    assert b'"it broke"' in pieces[-3]


def test_a_connection_that_is_kept_holds_no_answer(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log probabilities may take hundreds of megabytes, until the next request or the connection's end."""
    made, make = list[ref[Answers]](), Answers.__init__

    def noted(self: Answers, *given: Any, **words: Any) -> None:
        made.append(ref(self))
        make(self, *given, **words)

    monkeypatch.setattr(Answers, "__init__", noted)
    body = {"prompt": "It was late when", "max_tokens": 2, "logprobs": 1}
    for asked in (body, body | {"stream": True}):
        assert client.post("/v1/completions", json=asked).status_code == 200
    assert len(made) == 2
    for _ in range(100):  # until the last request is logged, and not until the connection ends by itself
        gc.collect()
        if made[0]() is made[1]() is None:
            return
        sleep(0.02)
    raise AssertionError("the answers are held")


def test_a_connection_that_is_reset_is_not_kept(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, over, end = list[LimitedProtocol](), threading.Event(), LimitedProtocol.connection_lost

    def noted(self: LimitedProtocol, error: Exception | None) -> None:
        end(self, error)
        lost.append(self)
        over.set()

    monkeypatch.setattr(LimitedProtocol, "connection_lost", noted)
    connection = opened(address, b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
    reply = b""
    while b'"ready"' not in reply:
        reply += connection.recv(65536)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert over.wait(60) and lost[0].timeout_keep_alive_task is None
