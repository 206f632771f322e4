"""An ASGI application asked in this process, without a socket: the replica's end of `Fleet.send`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message

from outdraft.server.fleet.ask import Ask, Head


async def ask_here(app: ASGIApp, ask: Ask) -> AsyncGenerator[Head | bytes, None]:
    """The reply; pieces that are there at the same time come as one. Closing it hangs up on the application."""
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


def _scope(ask: Ask) -> dict[str, Any]:
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": ask.method,
        "path": ask.path, "raw_path": ask.path.encode(), "root_path": "", "query_string": ask.query,
        "headers": list(ask.headers), "client": ask.client, "server": None,
    }  # fmt: skip
