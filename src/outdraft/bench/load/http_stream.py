"""As much of HTTP as a load needs, over asyncio's streams: a JSON answer, and server-sent events as they arrive.

A connection serves one request. Bodies are chunked, of a given length, or end with the connection.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from outdraft.options.errors import OutdraftError

SILENCE = 300.0  # seconds without a byte after which a server is given up
_LONGEST_LINE = 1 << 22  # bytes


class HttpError(OutdraftError):
    """No connection, no answer, or one that says that it failed."""


async def read_json(url: str) -> Any:
    """The JSON document at `url`."""
    body = b"".join([part async for part in _body("GET", url, b"")])
    try:
        return json.loads(body)
    except ValueError as error:
        raise HttpError(f"{url} is no JSON: {body[:80]!r}") from error


async def read_events(url: str, body: Mapping[str, Any]) -> AsyncIterator[str]:
    """The data of each event of the stream that answers this JSON body, without the final [DONE]."""
    rest = b""
    async for part in _body("POST", url, json.dumps(body).encode()):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").strip().partition(":")
            if name == "data" and value.strip() != "[DONE]":
                yield value.strip()


async def _body(verb: str, url: str, sent: bytes) -> AsyncIterator[bytes]:
    """The parts of the body as they arrive. Raises `HttpError`."""
    where = urlsplit(url)
    host, secure = where.hostname or "", where.scheme == "https"
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(
                host, where.port or (443 if secure else 80), ssl=secure or None, limit=_LONGEST_LINE
            ),
            SILENCE,
        )
    except (OSError, TimeoutError) as error:
        raise HttpError(f"no connection ({error or 'no answer'})") from error
    try:
        head = [f"{verb} {where.path or '/'} HTTP/1.1", f"Host: {where.netloc}", "Connection: close"]
        head += ["Content-Type: application/json", f"Content-Length: {len(sent)}"] if sent else []
        writer.write("\r\n".join([*head, "", ""]).encode() + sent)
        await writer.drain()
        status, headers = await _head(reader)
        parts = _parts(reader, headers)
        if status != 200:
            said = b"".join([part async for part in parts]).decode("utf-8", "replace").strip()
            raise HttpError(f"it answers {status} to {where.path}: {said[:300] or 'nothing more'}")
        async for part in parts:
            yield part
    except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        raise HttpError(f"the connection broke off ({error or type(error).__name__})") from error
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SILENCE)).decode("latin-1").split("\r\n")
    named = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.strip().lower(): value.strip() for name, _, value in named}


async def _parts(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await asyncio.wait_for(reader.readuntil(b"\n"), SILENCE)).split(b";")[0], 16):
            yield (await asyncio.wait_for(reader.readexactly(size + 2), SILENCE))[:-2]
        return
    left = int(headers.get("content-length", -1))
    while left:
        part = await asyncio.wait_for(reader.read(65536 if left < 0 else min(left, 65536)), SILENCE)
        if not part:
            return
        left = left - len(part) if left > 0 else left
        yield part
