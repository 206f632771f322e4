"""A transport that, once closed, reads and drops what its client still sends, so that the client reads its answer.

    close()   the answer ends here, shown to the client where the transport can    what comes is dropped
    then      the client's own end, or the end of its seconds                     the connection ends

A connection that ends with unread bytes is reset, and a reset takes the answer with it: RFC 9112, section 9.6.
"""

import asyncio
from collections.abc import Callable
from typing import Any


class Lingering:
    """Around a transport of asyncio. `seconds`: for how long, asked when it is closed; 0: nothing more will come."""

    def __init__(self, transport: asyncio.Transport, seconds: Callable[[], float]) -> None:
        self._transport, self._seconds = transport, seconds
        self._closed: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether nothing more is written to it."""
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
        """The connection is gone."""
        if self._closed is not None:
            self._closed.cancel()
