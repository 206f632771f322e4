"""A request over HTTP as plain data, which can be sent to another machine, and what comes back.

Ask  -->  Fleet.send  -->  Head, bytes, bytes, ...        `ReplicaLost` where the replica that answered has died
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from outdraft.server.fleet.route_key import RouteKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
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
        """Whether server-sent events follow."""
        return self.status == 200 and any(
            name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in self.headers
        )


class ReplicaLost(Exception):
    """The replica that was answering has died: the request may be sent to another one."""


class Fleet(Protocol):
    """Engines that answer requests; which of them, is its affair."""

    def send(self, ask: Ask, key: RouteKey) -> AsyncIterator[Head | bytes]:
        """The reply: its head, then pieces of its body. Raises `ReplicaLost` at any point.

        A caller that wants no more of it closes the iterator, which cancels the request.
        """
        ...
