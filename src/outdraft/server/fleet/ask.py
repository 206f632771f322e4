"""A request over HTTP as plain data, which can be sent to another machine, and what comes back.

ProxiedRequest  -->  Fleet.send  -->  Head, bytes, bytes, ...      `ReplicaLost` where the replica that answers died
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import ASGIApp, Message

from outdraft.server.fleet.route_key import RouteKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedRequest:
    """A request: everything that an ASGI application wants to know of it."""

    method: str
    path: str
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    client: tuple[str, int] | None = None  # address and port of who asks
    streams: bool = False  # the reply is wanted piece by piece

    def header(self, name: bytes) -> bytes:
        """The value of a header; empty where it is not sent."""
        return next((value for one, value in self.headers if one.lower() == name), b"")


@dataclass(frozen=True, slots=True)
class Head:
    """How a reply begins."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def is_stream(self) -> bool:
        return self.status == 200 and any(
            name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in self.headers
        )


class ReplicaLost(Exception):
    """The replica that was answering has died: the request may be sent to another one."""


class Fleet(Protocol):
    """Engines that answer requests; which of them, is its affair."""

    def send(self, ask: ProxiedRequest, key: RouteKey) -> AsyncIterator[Head | bytes]:
        """The reply: its head, then pieces of its body. Raises `ReplicaLost` at any point.

        A caller that wants no more of it closes the iterator, which cancels the request.
        """


async def ask_here(app: ASGIApp, ask: ProxiedRequest) -> AsyncGenerator[Head | bytes, None]:
    """The reply of an ASGI application in this process, asked without a socket: the replica's end of `Fleet.send`.

    Pieces that are there at the same time come as one. Closing it hangs up on the application.
    """
    came: asyncio.Queue[Message | None] = asyncio.Queue()
    gone = asyncio.Event()
    body: list[Message] = [{"type": "http.request", "body": ask.body, "more_body": False}]

    async def receive() -> Message:
        if body:
            return body.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        came.put_nowait(message)

    async def run() -> None:
        try:
            await app(_scope(ask), receive, send)
        finally:
            came.put_nowait(None)

    running = asyncio.ensure_future(run())
    try:
        while (message := await came.get()) is not None:
            if message["type"] == "http.response.start":
                yield Head(message["status"], tuple((bytes(name), bytes(value)) for name, value in message["headers"]))
                continue
            piece, is_over = message.get("body", b""), False
            while not came.empty() and not is_over:
                following = came.get_nowait()
                is_over = following is None
                piece += b"" if following is None else following.get("body", b"")
            if piece:
                yield piece
            if is_over:
                break
        await running
    finally:
        gone.set()
        running.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await running


def _scope(ask: ProxiedRequest) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": ask.method,
        "path": ask.path,
        "raw_path": ask.path.encode(),
        "root_path": "",
        "query_string": ask.query,
        "headers": list(ask.headers),
        "client": ask.client,
        "server": None,
    }
