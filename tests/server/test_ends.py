"""A server in a process of its own is killed, or asked to end: what its clients see, and what is left on disk."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
from warm import Started, started

from outdraft import LLM, SamplingParams

PROMPT = "It was late when"
LONG = {"prompt": PROMPT, "max_tokens": 300, "ignore_eos": True, "temperature": 1, "seed": 3, "n": 4, "stream": True}
WEIGHTS = ("--weights-memory", "1MiB", "--dtype", "bfloat16")  # packed into a file of the cache


class Process:
    """`outdraft serve`, whose log is a file, because a pipe without a reader would fill."""

    def __init__(self, log: Path, made: Started) -> None:
        self.log, self.made = log, made

    def ready(self) -> str:
        """Its address, when it takes requests."""
        for line in self.made.out:
            if b"is served at" in line:
                return line.split()[-1].decode()
        raise AssertionError(f"it ended: {self.log.read_text()}")

    def kill(self) -> None:
        self.made.send(signal.SIGKILL)


@contextmanager
def running(cache: Path, *words: str, fresh: bool = False) -> Iterator[Process]:
    """One whose cache is `cache`."""
    log = cache.parent / "log"
    env = {"OUTDRAFT_CACHE": str(cache), "OUTDRAFT_REMEMBER": "on", "NO_COLOR": "1", "COLUMNS": "200"}
    words = ("serve", "--port", "0", "--served-model-name", "m", *words)
    with (
        log.open("ab") as errors,
        started("outdraft.cli.main", *words, to_err=errors.fileno(), fresh=fresh, **env) as made,
    ):
        yield Process(log, made)


class Client(threading.Thread):
    """Reads one long stream to its end, whatever that is."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address, self.texts = address, [""] * int(LONG["n"])  # type: ignore[call-overload]
        self.begun, self.is_whole = threading.Event(), False
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            with httpx.stream("POST", f"{self.address}/v1/completions", json=LONG, timeout=120) as reply:
                for line in reply.iter_lines():
                    if line == "data: [DONE]":
                        self.is_whole = True
                    elif line.startswith("data: "):
                        for choice in json.loads(line[6:])["choices"]:
                            self.texts[choice["index"]] += choice["text"]
                        self.begun.set()
        except httpx.HTTPError as error:
            self.error = error
        self.begun.set()


@pytest.fixture(scope="module")
def rights(llm: LLM) -> list[str]:
    params = SamplingParams(max_tokens=300, ignore_eos=True, temperature=1.0, seed=3, n=4)
    return [one.text for one in llm.generate(PROMPT, params, num_speculative_tokens=0).outputs]


def greedy(address: str) -> Any:
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    return httpx.post(f"{address}/v1/completions", json=body, timeout=120).json()["choices"][0]["text"]


def loaded(address: str, count: int = 4) -> list[Client]:
    clients = [Client(address) for _ in range(count)]
    for one in clients:
        assert one.begun.wait(60)
    assert not any(one.is_whole for one in clients)
    return clients


def test_it_is_killed_under_load_and_is_there_again(tmp_path: Path, rights: list[str], llm: LLM) -> None:
    right = llm.generate(PROMPT, SamplingParams(max_tokens=24)).text
    with running(tmp_path / "cache") as first:
        clients = loaded(first.ready())
        first.kill()
        for one in clients:
            one.join(60)
            assert isinstance(one.error, httpx.RemoteProtocolError | httpx.ReadError) and not one.is_whole
            assert all(whole.startswith(text) for whole, text in zip(rights, one.texts, strict=True))
        assert first.made.end() == -signal.SIGKILL
    with running(tmp_path / "cache") as second:
        address = second.ready()
        assert httpx.get(f"{address}/ready").status_code == 200
        assert greedy(address) == right
    assert "Traceback" not in first.log.read_text()


def test_sigterm_lets_running_requests_finish_and_refuses_new_ones(tmp_path: Path, rights: list[str]) -> None:
    with running(tmp_path / "cache", "--drain-timeout", "100", fresh=True) as server:
        address = server.ready()
        clients = loaded(address, 1)
        server.made.send(signal.SIGTERM)
        end = monotonic() + 60
        while (ready := httpx.get(f"{address}/ready")).status_code == 200 and monotonic() < end:
            sleep(0.01)
        assert (ready.status_code, ready.json()) == (503, {"status": "draining"})
        assert httpx.get(f"{address}/live").status_code == 200
        reply = httpx.post(f"{address}/v1/completions", json={"prompt": "a"})
        assert reply.status_code == 503 and reply.headers["retry-after"]
        assert reply.json()["error"]["type"] == "unavailable_error" and "draining" in reply.json()["error"]["message"]
        for one in clients:
            one.join(120)
            assert one.is_whole and one.error is None and one.texts == rights
        assert server.made.end() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/ready")


def test_a_second_sigterm_ends_it_at_once(tmp_path: Path, rights: list[str]) -> None:
    with running(tmp_path / "cache", "--drain-timeout", "1000") as server:
        address = server.ready()
        clients = loaded(address)
        server.made.send(signal.SIGTERM)
        while httpx.get(f"{address}/ready").status_code == 200:
            sleep(0.01)
        server.made.send(signal.SIGTERM)
        server.made.end()
        for one in clients:
            one.join(60)
            assert not one.is_whole
            assert all(whole.startswith(text) for whole, text in zip(rights, one.texts, strict=True))
    assert "Traceback" not in server.log.read_text()


def test_what_the_drain_cuts_off_is_refused_as_unavailable(tmp_path: Path) -> None:
    with running(tmp_path / "cache", "--drain-timeout", "0") as server, ThreadPoolExecutor(4) as threads:
        address = server.ready()
        asked = [
            threads.submit(httpx.post, f"{address}/v1/{path}", json=body, timeout=60)
            for path, body in (
                ("completions", {**LONG, "max_tokens": 900}),
                ("completions", {**LONG, "max_tokens": 900, "stream": False}),
                ("responses", {"input": PROMPT, "ignore_eos": True}),
                ("responses", {"input": PROMPT, "ignore_eos": True, "stream": True}),
            )
        ]
        end = monotonic() + 60
        while httpx.get(f"{address}/load").json()["num_requests_running"] < 10 and monotonic() < end:
            sleep(0.01)
        server.made.send(signal.SIGTERM)
        stream, *wholes, events = (one.result() for one in asked)
        assert server.made.end() == 0
    *_, last, done = stream.text.split("\n\n")[:-1]
    errors = [json.loads(last.removeprefix("data: "))["error"], *(one.json()["error"] for one in wholes)]
    assert done == "data: [DONE]" and [one.status_code for one in wholes] == [503, 503]
    for one in errors:
        assert (one["type"], one["code"]) == ("unavailable_error", "draining") and "--drain-timeout" in one["message"]
    *_, event, failed = (json.loads(one.partition("data: ")[2]) for one in events.text.split("\n\n")[:-1])
    assert (event["type"], event["code"], event["message"]) == ("error", "draining", errors[0]["message"])
    assert failed["response"]["error"] == {**errors[0], "code": "server_error"}
    assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
def test_nothing_on_disk_is_corrupt(tmp_path: Path) -> None:
    """It is killed while it packs its weights, just when it has packed them, and while it answers."""
    cache, waits = tmp_path / "cache", (0.0, 0.01, 0.05, 0.2)
    for wait in waits:
        with running(cache, *WEIGHTS) as server:
            while not any(cache.glob("packed/**/*")) and server.made.process.is_alive():
                sleep(0.001)
            sleep(wait)
            assert server.made.process.is_alive(), "it packs, or has packed"
            server.kill()
    texts = []
    for _ in range(2):
        with running(cache, *WEIGHTS) as server:
            address = server.ready()
            texts.append(greedy(address))
            loaded(address, 2)
            server.kill()
    with running(tmp_path / "fresh", *WEIGHTS) as server:
        assert texts == [greedy(server.ready())] * 2
    assert "Traceback" not in server.log.read_text()


def test_clients_that_do_nothing_do_not_keep_it_from_ending(tmp_path: Path) -> None:
    """One has sent half a body, one takes nothing of its answer; both would have ten minutes."""
    words = ("--drain-timeout", "1", "--body-timeout", "600", "--send-timeout", "600")
    with running(tmp_path / "cache", *words) as server:
        port = int(server.ready().rpartition(":")[2])
        head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: %d\r\n\r\n"
        half = socket.create_connection(("127.0.0.1", port))
        half.sendall(head % 100 + b'{"a"')
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", port))
        data = json.dumps(
            {**LONG, "n": 8, "max_tokens": 600, "logprobs": 20, "return_token_ids": True, "stream_interval": 1}
        ).encode()
        stuck.sendall(head % len(data) + data)
        stuck.recv(1)
        server.made.send(signal.SIGTERM)
        assert server.made.end() == 0
