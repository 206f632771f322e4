"""The soak over HTTP in short, and that it notices a server that answers wrongly, each time in another way."""

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

pytest.importorskip("fastapi")
import uvicorn

from lab.soak_http import __main__ as command
from lab.soak_http.asked import Written, kinds, right
from lab.soak_http.judge import faults_of_error
from lab.soak_http.model import write_model
from lab.soak_http.process import ServerProcess
from lab.soak_http.run import PLANTED, Soak, Tally
from lab.soak_http.server import Planted
from outdraft import LLM
from outdraft.server.serve import make_config
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings

pytestmark = pytest.mark.logs_faults
KINDS = kinds(Random(0), 16)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    for name in ("outdraft", "uvicorn"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    model = write_model("zoo:target", tmp_path_factory.mktemp("soak") / "model")
    with LLM(str(model), kv_cache_memory="1MiB", enable_prefix_caching=True, max_num_seqs=24) as made:
        yield made
    for name in ("outdraft", "uvicorn"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@contextmanager
def served(llm: LLM, change: Callable[[Any], Any] = lambda app: app) -> Iterator[str]:
    settings = ServerSettings(served_model_name=("soaked",), max_tokens=64, tool_call_parser="hermes", body_timeout=0.5)
    service = Planted(llm, settings)
    config = make_config(service, port=0)
    config.app = change(config.app)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = server.force_exit = True
    thread.join(10)
    service.stop_listening()


@pytest.fixture(scope="module")
def rights(llm: LLM) -> list[Written]:
    tally = Tally()
    with served(llm) as address:
        alone = [right(llm, kind) for kind in KINDS]
        known = asyncio.run(command.rights_of(address, KINDS, alone, tally))
    assert tally.wrong == []
    return known


def soaked(address: str, rights: list[Written], count: int) -> Tally:
    """What the server did to so many requests."""

    async def run() -> Tally:
        soak = Soak(address, KINDS, rights, seed=5, slow_body=0.5, planted=True)
        tally = await soak.run(count, callers=16)
        await command.at_rest(address, tally)
        return tally

    return asyncio.run(run())


def test_no_client_is_wronged(llm: LLM, rights: list[Written]) -> None:
    with served(llm) as address:
        tally = soaked(address, rights, 160)
    assert tally.wrong == []
    kinds_met = {name.partition(":")[0].partition(" ")[0] for name in tally.counts}
    assert {"whole", "streamed", "cancelled", "broken", "planted"} <= kinds_met
    assert {200, 400, 500} <= {*tally.statuses}


class Changed:
    """An application whose bodies are others. `change`: of a body, or of a stream's piece; None: unchanged."""

    def __init__(self, app: Any, change: Callable[[int, bytes], bytes]) -> None:
        self.app, self.change = app, change

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status, parts, streams = 0, [], False
        head: Any = None

        async def changed(message: Any) -> None:
            nonlocal status, streams, head
            if message["type"] == "http.response.start":
                status, head = message["status"], message
                streams = not any(name == b"content-length" for name, _ in message["headers"])
                if streams:
                    await send(message)
            elif streams:
                await send({**message, "body": self.change(status, message.get("body", b""))})
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    body = self.change(status, b"".join(parts))
                    others = [one for one in head["headers"] if one[0] != b"content-length"]
                    await send({**head, "headers": [*others, (b"content-length", str(len(body)).encode())]})
                    await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, changed)


def of_errors(change: Callable[[str], str]) -> Callable[[int, bytes], bytes]:
    """Changes the messages of errors."""

    def changed(status: int, body: bytes) -> bytes:
        if status < 400:
            return body
        told = json.loads(body)
        return json.dumps({"error": {**told["error"], "message": change(told["error"]["message"])}}).encode()

    return changed


def another_text(status: int, body: bytes) -> bytes:
    return body.replace(b'"text":"', b'"text":"x').replace(b'"content":"', b'"content":"x') if status == 200 else body


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (another_text, "wrote"),
        (of_errors(lambda message: ""), "no clear message"),
        (of_errors(lambda message: f"{message} at 0x7f0011223344"), "shows the inside"),
        (of_errors(lambda message: "Traceback (most recent call last): ..."), "shows the inside"),
        (lambda status, body: body if status < 400 else b"Internal Server Error", "no JSON"),
        (lambda status, body: b"" if body == b"data: [DONE]\n\n" else body, "a stream has no end"),
    ],
    ids=["text", "empty", "address", "traceback", "plain", "endless"],
)
def test_a_wrong_answer_is_noticed(
    llm: LLM, rights: list[Written], change: Callable[[int, bytes], bytes], says: str
) -> None:
    with served(llm, lambda app: Changed(app, change)) as address:
        wrong = soaked(address, rights, 30).wrong
    assert any(says in one for one in wrong), wrong[:5]


def test_a_planted_fault_without_effect_is_noticed(
    llm: LLM, rights: list[Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Planted, "open", Service.open)
    with served(llm) as address:
        wrong = soaked(address, rights, 60).wrong
    assert any("asked for the fault" in one for one in wrong), wrong[:5]


def test_faults_that_never_came_up_are_named() -> None:
    tally = Tally(counts=Counter({f"planted, and failed: {fault}": 2 for fault in PLANTED}))
    assert command.without_effect(tally, {"broke": 1, "preempted": 3}) == []
    tally.counts["planted, and failed: raise"] = 0
    told = command.without_effect(tally, {"broke": 0, "preempted": 0})
    assert len(told) == 3 and "'raise'" in told[0]


def test_silence_is_noticed(llm: LLM, rights: list[Written], monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("lab.soak_http.wire.SILENCE", 0.2)
    with served(llm, lambda app: silent) as address:
        tally = asyncio.run(Soak(address, KINDS[:1], rights[:1]).run(4, callers=4))
    assert any("no byte for" in one for one in tally.wrong)


@pytest.mark.parametrize(
    "body",
    [
        b'{"detail": "Not Found"}',
        b'{"error": "Unauthorized"}',
        b'{"error": {"message": "a b c", "type": "t"}}',
        b'{"error": {"message": "in /usr/lib/x.py:3", "type": "t", "param": null, "code": null}}',
        b'{"error": {"message": "one line\\nanother one", "type": "t", "param": null, "code": null}}',
        b'{"error": {"message": "a clear sentence", "type": "", "param": null, "code": 400}}',
    ],
)
def test_an_error_of_another_shape_is_noticed(body: bytes) -> None:
    assert faults_of_error(400, "application/json", body)
    right_one = b'{"error": {"message": "say it otherwise", "type": "t", "param": null, "code": null}}'
    assert faults_of_error(400, "application/json", right_one) == []


def test_a_server_that_does_not_begin_is_ended() -> None:
    server = ServerProcess(["-c", "import time; print('{}', flush=True); time.sleep(600)"])

    async def enter() -> None:
        with pytest.raises(KeyError):
            await server.__aenter__()
        assert not server.is_alive

    asyncio.run(enter())


@pytest.mark.slow
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole of it, with a server in a process of its own."""
    assert command.main(["--requests", "300", "--callers", "24"]) == 0, capsys.readouterr().out
