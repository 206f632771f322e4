"""HTTP/1.1 on one connection: uvicorn's, with limits for clients that are slow, and with errors in OpenAI's shape.

    a head that has not come within `head_timeout` seconds                        408
    no HTTP, or a head that is too large                                          400, 431
    more connections than `max_connections`                                       503
    a refused body that goes on for `body_timeout` seconds                        the connection ends
    an answer of which the client takes nothing for `send_timeout` seconds        the connection ends

Until then a refused body is read and dropped, so that a client which sends first and reads then gets the answer, and no
reset (`Lingering`).
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from outdraft.server.connection import error_reply
from outdraft.server.errors import ApiError, overloaded
from outdraft.server.settings import ServerSettings

LONGEST_HEAD = 64 * 1024  # bytes of the request line and the headers, the empty line included
_LINGERS = 2.0  # seconds
_AUTHORITY = re.compile(rb"https?://[^/?]+", re.IGNORECASE)  # before the path, in a target that is absolute
_FRAMING = {b"content-length", b"transfer-encoding"}


class LimitedProtocol(H11Protocol):
    """One connection, held to the limits of its server."""

    def __init__(self, *given: Any, settings: ServerSettings, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn: HeadLimited = HeadLimited()
        self._settings = settings
        self._due: asyncio.TimerHandle | None = None  # for what the client must send
        self._waits_for: str | None = None
        self._is_refused = False
        self._taken: asyncio.TimerHandle | None = None  # for what it must take

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._lingering = Lingering(transport, self._lingers)
        super().connection_made(self._lingering)  # type: ignore[arg-type]
        if len(self.connections) > self._settings.max_connections:
            self._refuse(overloaded("the server has as many connections as it takes: come later"))
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._due, self._taken):
            if timer is not None:
                timer.cancel()
        self._lingering.end()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # of a connection that was reset, too: it would be held until then

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taken = self.loop.call_later(self._settings.send_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taken is not None:
            self._taken.cancel()

    def send_400_response(self, msg: str) -> None:
        """What h11 cannot read."""
        if self.conn.is_too_large:
            told = f"the head of the request is larger than {LONGEST_HEAD} bytes"
            self._refuse(ApiError(431, f"{told}: send fewer or shorter headers, and the rest in the body"))
            return
        told = "this is no request of HTTP/1.1 that can be read"
        cure = "look at its first line, its headers, and the length or the chunks of its body"
        self._refuse(ApiError(400, f"{told}: {cure}"))

    def _watch(self) -> None:
        """One timer for each thing that is waited for; it does not begin anew with every byte."""
        waits_for = self._missing()
        if waits_for == self._waits_for:
            return
        self._waits_for = waits_for
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if waits_for == "head":
            self._due = self.loop.call_later(self._settings.head_timeout, self._head_is_late)
        elif waits_for == "rest":
            self._due = self.loop.call_later(self._settings.body_timeout, self.transport.abort)

    def _missing(self) -> str | None:
        """A body that is wanted has its time limit where it is read (`doors/body_limit.py`)."""
        if self.transport.is_closing():
            return None
        if self.conn.their_state is h11.IDLE:
            return "head" if self.timeout_keep_alive_task is None or self.conn.trailing_data[0] else None
        return "rest" if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE else None

    def _head_is_late(self) -> None:
        if self.conn.trailing_data[0]:
            seconds = f"{self._settings.head_timeout:g} seconds"
            told = f"the head of the request did not come within {seconds}: send it at once"
            self._refuse(ApiError(408, told, code="head_too_slow"))
        else:
            self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        """Answer without an application, and end the connection."""
        self._is_refused = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reply = error_reply(error, {"Connection": "close"})
            for event in (
                h11.Response(status_code=error.status, headers=reply.raw_headers),
                h11.Data(data=bytes(reply.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if self._due is not None:
            self._due.cancel()
        self.transport.close()

    def _lingers(self) -> float:
        """Seconds in which what the client still sends is dropped."""
        if self._is_refused:
            return _LINGERS
        return self._settings.body_timeout if self.conn.their_state is h11.SEND_BODY else 0.0


class HeadLimited(h11.Connection):
    """h11's reader, with an exact limit of a request's head (its own holds for heads that are incomplete alone), with
    one length for each body, and with absolute targets as paths: RFC 9112, sections 6.3 and 3.2.2.

    `is_too_large`: it has met a head that is larger, and raised `h11.RemoteProtocolError`.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, LONGEST_HEAD)
        self.is_too_large = False

    def next_event(self) -> "h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]":
        before = len(self.trailing_data[0]) if self.their_state is h11.IDLE else None
        try:
            event = super().next_event()
        except h11.RemoteProtocolError:
            self.is_too_large = before is not None and before > LONGEST_HEAD
            raise
        if before is not None and isinstance(event, h11.Request):
            self.is_too_large = before - len(self.trailing_data[0]) > LONGEST_HEAD
            if self.is_too_large:
                raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
            if {name for name, _ in event.headers} >= _FRAMING:
                raise h11.RemoteProtocolError("the body has two lengths")
            if found := _AUTHORITY.match(event.target):
                path = event.target[found.end() :]
                return replace(event, target=path if path.startswith(b"/") else b"/" + path)
        return event


class Lingering:
    """Around a transport of asyncio which, once closed, reads and drops what its client still sends.

        close()   the answer ends here, shown to the client where the transport can    what comes is dropped
        then      the client's own end, or the end of its seconds                     the connection ends

    A connection that ends with unread bytes is reset, and a reset takes the answer with it: RFC 9112, section 9.6.
    `seconds`: for how long, asked when it is closed; 0: nothing more will come.
    """

    def __init__(self, transport: asyncio.Transport, seconds: Callable[[], float]) -> None:
        self._transport, self._seconds = transport, seconds
        self._closed: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._closed is not None or self._transport.is_closing()

    def close(self) -> None:
        """End it now, or when the client has ended."""
        if self.is_closing() or not (seconds := self._seconds()):
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()
        self._closed = asyncio.get_running_loop().call_later(seconds, self._transport.close)

    def end(self) -> None:
        if self._closed is not None:
            self._closed.cancel()
