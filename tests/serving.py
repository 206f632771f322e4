"""A server in a thread, with settings of a test's own, and sockets for what no client would send."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from outdraft import LLM
from outdraft.server.serve import make_config
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings


@contextmanager
def serving(llm: LLM, *, send_buffer: int | None = None, **settings: Any) -> Iterator[tuple[str, Service]]:
    """Where it listens, and the service behind it. `send_buffer`: bytes that the system takes for a slow reader."""
    service = Service(llm, ServerSettings(**{"served_model_name": ("target",), **settings}))
    server = uvicorn.Server(make_config(service, port=0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    listens = server.servers[0].sockets[0]
    if send_buffer is not None:
        listens.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    try:
        yield f"http://127.0.0.1:{listens.getsockname()[1]}", service
    finally:
        server.should_exit = True
        thread.join(10)
        service.stop_listening()


def opened(address: str, sent: bytes) -> socket.socket:
    """A connection over which these bytes were sent, and nothing more."""
    connection = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=30)
    connection.sendall(sent)
    return connection


def received(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)
