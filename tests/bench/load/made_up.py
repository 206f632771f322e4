"""Made-up servers: one of this process whose times are given, and one over HTTP that speaks as others do."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from outdraft.bench.load.clients import Answer
from outdraft.bench.load.jobs import LoadJob
from outdraft.options.params import SamplingParams


def make_job(number: int, length: int = 4) -> LoadJob:
    params = SamplingParams(max_tokens=length, ignore_eos=True)
    return LoadJob(number=number, name=f"made {number}", ids=(1, 2, number), params=params)


class Counting:
    """Answers after `waits` turns of the loop; notes how many requests were open at once."""

    foreign = False

    def __init__(self, broken: int | None = None) -> None:
        self.config: dict[str, Any] = {}
        self.open = self.most = self.prepared = 0
        self.asked: list[int] = []
        self.cancelled = self.rested = 0
        self.worked = 0.0
        self.broken = broken

    def promises(self, params: SamplingParams) -> bool:
        return True

    def prepare(self) -> None:
        self.prepared += 1

    def work_seconds(self) -> float | None:
        self.worked += 1.5
        return self.worked

    def rest(self) -> None:
        self.rested += 1

    async def ask(self, job: LoadJob) -> Answer:
        self.open += 1
        self.most = max(self.most, self.open)
        self.asked.append(job.number)
        try:
            await asyncio.sleep(0.001 * (1 + job.number % 3))
            if job.number == self.broken:
                raise ValueError("out of luck")
            if self.broken is not None:
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open -= 1
        ids = tuple(range(job.params.max_tokens or 0))
        return Answer(arrivals=(0.1, 0.4), num_first=1, num_tokens=len(ids), text="ab", token_ids=ids)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._whole(200, json.dumps({"data": [{"id": "made-up", "owned_by": "a-person"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))  # type: ignore[attr-defined]
        how = self.server.how  # type: ignore[attr-defined]
        if how == "refuses":
            return self._whole(400, json.dumps({"error": "no such field"}))
        events = list(_events(how, body["max_tokens"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        if how == "unchunked":
            self.send_header("Connection", "close")
            self.end_headers()
            for event in events:
                self.wfile.write(event)
            self.close_connection = True
            return None
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        stream = b"".join(events)
        # cut where no event ends, as networks do
        for at in range(0, len(stream), 37):
            part = stream[at : at + 37]
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if how == "breaks off":
            self.close_connection = True
            return None
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _whole(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def _events(how: str, count: int) -> Iterator[bytes]:
    """Two tokens a piece."""
    for at in range(0, count, 2):
        piece: dict[str, Any] = {"text": "éx"[: count - at]}
        if how == "ids":
            piece["token_ids"] = list(range(at, min(at + 2, count)))
        yield b"data: " + json.dumps({"choices": [piece]}, ensure_ascii=False).encode() + b"\n\n"
    if how in ("usage", "unchunked"):
        yield b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": count}}).encode() + b"\n\n"
    if how == "timings":
        told = {"predicted_n": count, "draft_n": 6, "draft_n_accepted": 3}
        yield b"data: " + json.dumps({"choices": [{"text": ""}], "timings": told}).encode() + b"\n\n"
    if how == "fails":
        yield b'data: {"error": {"message": "out of memory"}}\n\n'
    yield b"data: [DONE]\n\n"


@contextmanager
def http_server(how: str) -> Iterator[tuple[str, list[Any]]]:
    """Its URL, and what it was asked: (path, body)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.how, server.asked = how, []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
