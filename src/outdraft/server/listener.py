"""Accepts connections: each is counted from then on, and none is left waiting for a client that says nothing.

TLS handshakes       at most `_HANDSHAKES` at once; of more the oldest gives way, and none lasts longer than a head
connections          `max_connections` (`protocol.py` refuses those above it), and so many more to refuse; others end
no descriptor left   the next is accepted a second later, and the log has one line a minute
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

_HANDSHAKES = 64
_SPARE = 64  # connections that are accepted only to be refused, as there are too many
_RETRY, _SAY_AGAIN = 1.0, 60.0  # seconds
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger("outdraft.server")


class Listener:
    """One socket that listens, in the place of asyncio's own server.

    `make`: the protocol of a connection. `most`: connections at once. `handshake`: seconds that a TLS handshake has.
    `clock`: seconds.
    """

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        *,
        most: int,
        handshake: float,
        num_open: Callable[[], int],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.sockets = [sock]
        self._make, self._context, self._most, self._handshake = make, context, most, handshake
        self._num_open, self._clock = num_open, clock
        self._loop = asyncio.get_running_loop()
        self._starting: dict[asyncio.Task[None], None] = {}  # connections that have no protocol yet, the oldest first
        self._said_at: float | None = None
        self._retry: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more, and end what has not begun."""
        if self._retry is not None:
            self._retry.cancel()
        for sock in self.sockets:
            self._loop.remove_reader(sock)
            sock.close()
        for task in [*self._starting]:
            task.cancel()

    async def wait_closed(self) -> None:
        """Nothing of it is left to wait for."""

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self.sockets[0], self._accept)

    def _accept(self) -> None:
        """All who wait, as asyncio would, unless there are too many."""
        for _ in range(self._most):
            try:
                connection, _ = self.sockets[0].accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._pause(error)
                return
            if self._num_open() >= self._most + _SPARE:
                connection.close()
                continue
            connection.setblocking(False)
            task = self._loop.create_task(self._start(connection))
            self._starting[task] = None
            task.add_done_callback(lambda task: self._starting.pop(task, None))
            if len(self._starting) > _HANDSHAKES:
                oldest = next(iter(self._starting))
                del self._starting[oldest]
                oldest.cancel()

    async def _start(self, connection: socket.socket) -> None:
        """Until it has its protocol, which is after its handshake."""
        with suppress(OSError, EOFError, asyncio.CancelledError):  # it spoke no TLS, left, or was too slow
            await self._loop.connect_accepted_socket(
                self._make,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake if self._context is not None else None,
            )

    def _pause(self, error: OSError) -> None:
        self._loop.remove_reader(self.sockets[0])
        self._retry = self._loop.call_later(_RETRY, self._listen)
        now = self._clock()
        if self._said_at is None or now - self._said_at >= _SAY_AGAIN:
            self._said_at = now
            _log.error(
                "no connection can be accepted (%s): allow more open files (ulimit -n), or fewer connections than "
                "--max-connections %d",
                error.strerror,
                self._most,
            )
