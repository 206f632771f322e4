"""A connection that may misbehave: bytes as they are, in parts or slowly, and an end at any moment.

Answers are read as HTTP has them: a head, and a body of a given length, in chunks, or up to the connection's end.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_LONGEST_LINE = 1 << 22
SILENCE = 240.0  # seconds without a byte after which a request is stuck


class BrokenError(Exception):
    """The connection ended where an answer, or the rest of one, was due."""


class StuckError(Exception):
    """Nothing came for a long time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status and headers of an answer."""

    status: int
    headers: Mapping[str, str]


def request(method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole request, as an orderly client sends it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: soak"]
    given = dict(headers or {})
    if body is not None:
        given.setdefault("Content-Type", "application/json")
        given.setdefault("Content-Length", str(len(body)))
    lines += [f"{name}: {value}" for name, value in given.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (body or b"")


class Connection:
    """Opened by `open`. Reading raises `BrokenError` where the other end has gone, `StuckError` where it is silent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.may_go_on = True  # the answer has not said that it is the last one

    @classmethod
    async def open(cls, address: str) -> "Connection":
        """To http://HOST:PORT or https://HOST:PORT, whatever certificate stands there."""
        where = urlsplit(address)
        secure = ssl._create_unverified_context() if where.scheme == "https" else None
        try:
            made = asyncio.open_connection(where.hostname, where.port, limit=_LONGEST_LINE, ssl=secure)
            return cls(*await asyncio.wait_for(made, SILENCE))
        except TimeoutError as error:
            raise StuckError("no connection") from error
        except OSError as error:
            raise BrokenError("no connection") from error

    async def send(self, data: bytes, *, parts: int = 1, pause: float = 0.0) -> None:
        """In so many parts, with a pause between them. An end that closes meanwhile may have answered: no error."""
        size = -(-len(data) // parts) or 1
        with suppress(OSError):
            for i in range(0, len(data), size):
                self._writer.write(data[i : i + size])
                await asyncio.wait_for(self._writer.drain(), SILENCE)
                if pause:
                    await asyncio.sleep(pause)

    async def head(self) -> Head:
        """Of the next answer."""
        lines = (await self._read(self._reader.readuntil(b"\r\n\r\n"))).decode("latin-1").split("\r\n")
        named = (line.partition(":") for line in lines[1:] if line)
        found = Head(status=int(lines[0].split()[1]), headers={n.strip().lower(): v.strip() for n, _, v in named})
        self.may_go_on = found.headers.get("connection", "").lower() != "close"
        return found

    async def parts(self, head: Head) -> AsyncIterator[bytes]:
        """The pieces of the body as they come."""
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._read(self._reader.readuntil(b"\n"))).split(b";")[0], 16):
                yield (await self._read(self._reader.readexactly(size + 2)))[:-2]
            await self._read(self._reader.readuntil(b"\r\n"))
        elif (length := head.headers.get("content-length")) is not None:
            yield await self._read(self._reader.readexactly(int(length)))
        else:
            self.may_go_on = False
            while part := await self._read(self._reader.read(65536)):
                yield part

    async def body(self, head: Head) -> bytes:
        """All parts of the body, once the last has come."""
        return b"".join([part async for part in self.parts(head)])

    async def events(self, head: Head) -> AsyncIterator[Any]:
        """The data of a stream's events, as JSON; the last is "[DONE]"."""
        rest = b""
        async for part in self.parts(head):
            *blocks, rest = (rest + part).split(b"\n\n")
            for block in blocks:
                name, _, value = block.partition(b": ")
                if name == b"data":
                    yield "[DONE]" if value == b"[DONE]" else json.loads(value)
        if rest:
            raise BrokenError(f"a stream ends in the middle of an event: {rest[:80]!r}")

    def close(self, *, rudely: bool = False) -> None:
        """`rudely`: with a reset, as a process that dies leaves it."""
        if rudely and (plain := self._writer.get_extra_info("socket")) is not None:
            with suppress(OSError):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.close()

    async def _read(self, reading: Any) -> bytes:
        try:
            return bytes(await asyncio.wait_for(reading, SILENCE))
        except TimeoutError as error:
            raise StuckError(f"no byte for {SILENCE:.0f} s") from error
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise BrokenError(f"the connection broke off: {type(error).__name__}") from error
