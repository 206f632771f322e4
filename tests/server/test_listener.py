"""Connections are counted from the moment they are accepted, and no silent client keeps another one out."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serve_command import certified

from outdraft.server import listener
from outdraft.server.listener import Listener


class Greeter(asyncio.Protocol):
    """Says hello to every client that has got through."""

    def __init__(self, there: list[Any]) -> None:
        self.there = there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.there.append(transport)
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")

    def connection_lost(self, exc: Exception | None) -> None:
        self.there.pop()


def listening(there: list[Any], context: ssl.SSLContext | None, most: int = 3, **more: Any) -> tuple[Listener, int]:
    sock = socket.create_server(("127.0.0.1", 0))
    made = Listener(
        sock, lambda: Greeter(there), context, most=most, handshake=60.0, num_open=lambda: len(there), **more
    )
    return made, sock.getsockname()[1]


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*certified(tmp_path))
    return made


def trusting() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


async def hear(port: int, context: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return await reader.read(5)
    finally:
        writer.close()


async def ends(silent: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(silent, 10)
    except ConnectionResetError:
        return b""


def opened(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.setblocking(False)
    return made


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


def test_the_oldest_silent_client_of_tls_gives_way(context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_HANDSHAKES", 4)

    async def run() -> None:
        made, port = listening([], context)
        silent = [opened(port) for _ in range(4)]
        await until(lambda: len(made._starting) == 4)
        assert await hear(port, trusting()) == b"hello"
        assert await ends(silent[0]) == b""  # the three others are still there
        assert len(made._starting) == 3
        more = [opened(port) for _ in range(40)]
        assert await hear(port, trusting()) == b"hello"
        assert len(made._starting) <= 4
        made.close()
        for one in (*silent[1:], *more):
            assert await ends(one) == b""

    asyncio.run(asyncio.wait_for(run(), 60))


def test_connections_beyond_those_that_can_be_answered_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_SPARE", 2)

    async def run() -> None:
        there: list[Any] = []
        made, port = listening(there, None)
        held = []
        for count in range(1, 6):
            held.append(opened(port))
            await until(lambda count=count: len(there) == count)  # type: ignore[misc]
        assert await ends(opened(port)) == b""
        held.pop().close()
        await until(lambda: len(there) == 4)
        assert await hear(port) == b"hello"
        made.close()

    asyncio.run(asyncio.wait_for(run(), 60))


class Full(socket.socket):
    """A process without a file descriptor left, for as long as `is_full`."""

    is_full, tries = True, 0

    def accept(self) -> Any:
        self.tries += 1
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_without_a_descriptor_left_it_waits_and_says_so_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "_RETRY", 0.01)
    now = [0.0]

    async def run() -> None:
        sock = Full()
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        Listener(sock, lambda: Greeter([]), None, most=3, handshake=1.0, num_open=lambda: 0, clock=lambda: now[0])
        waiting = asyncio.ensure_future(hear(sock.getsockname()[1]))
        await until(lambda: sock.tries > 5)
        assert len(caplog.records) == 1
        now[0] = 61.0
        await until(lambda: len(caplog.records) == 2)
        sock.is_full = False
        assert await waiting == b"hello"

    with caplog.at_level(logging.ERROR):
        asyncio.run(asyncio.wait_for(run(), 60))
    assert len(caplog.records) == 2 and "allow more open files" in caplog.text
