"""The client's end of a request: JSON, or a stream of server-sent events, and what to do when it hangs up.

    data: {...}          one for each piece
    : keep-alive         after some seconds of silence, so that nothing between us closes the connection
    data: [DONE]

A client that goes away cancels its request: the task that makes the reply is cancelled, and its `finally` leaves the
engine. Comments are sent by a task beside the one that waits for events; neither ever waits for the other.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outdraft.server.errors import ApiError, broke_off

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"
_COMMENT = b": keep-alive\n\n"


class JsonReply(Response):
    """A body of plain data. Numbers that JSON does not have (minus infinity of a log probability) become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def as_json(data: Any) -> orjson.Fragment:
    """A part of a reply as JSON, so that what it was made of can go before the next part is made."""
    return orjson.Fragment(orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS))


def error_reply(error: ApiError, headers: Mapping[str, str] | None = None) -> JsonReply:
    """The reply that an error is."""
    return JsonReply(error.body, status_code=error.status, headers={**error.headers, **(headers or {})})


def event(data: Any, name: str | None = None) -> bytes:
    """One event; the Responses API gives its events names."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS) + b"\n\n"


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled if the client hangs up meanwhile. Raises `ClientDisconnect` then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hung_up(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        await _cancel(task, gone)


class EventStream(Response):
    """Sends what `events` yields; an error in it becomes the stream's last event, because the status has been sent.

    `close` is called when it is over, in whatever way, even if nothing was ever sent.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], *, close: Callable[[], object], keep_alive: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._close, self._keep_alive = events, close, keep_alive
        self._sent_at = 0.0  # when the last piece or comment was

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_hung_up(receive))
        sending = asyncio.ensure_future(self._send(send))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            self._close()
            await _cancel(sending, gone)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._sent_at = monotonic()
        commenting = asyncio.ensure_future(self._comment(send))
        try:
            async for piece in self._pieces():
                self._sent_at = monotonic()
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            await _cancel(commenting)
        await send({"type": "http.response.body", "body": b""})

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._events:
                yield piece
        except Exception as error:
            yield event(broke_off(error).body)
            yield DONE
        finally:
            closing: Callable[[], Awaitable[None]] | None = getattr(self._events, "aclose", None)
            if closing is not None:
                await closing()

    async def _comment(self, send: Send) -> None:
        """Whenever nothing was sent for so long. One clock for a stream: a timer for each piece would cost more."""
        while self._keep_alive:
            await asyncio.sleep(max(0.0, self._sent_at + self._keep_alive - monotonic()))
            if monotonic() - self._sent_at >= self._keep_alive:
                self._sent_at = monotonic()
                await send({"type": "http.response.body", "body": _COMMENT, "more_body": True})


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):  # an error of one that is done counts as seen, too
            await task
