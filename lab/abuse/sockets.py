"""Attacks below the body: heads, slow and silent connections, clients that take nothing or leave, TLS that is none.

Each holds what it opens for a few seconds at most, and closes it.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random

from lab.abuse.ask import Asked, ask
from lab.abuse.places import COMPLETIONS, PROMPT
from lab.abuse.target import Target
from lab.soak_http.asked import Kind
from lab.soak_http.broken import broken
from lab.soak_http.wire import BrokenError, Connection, request

HELD = 6.0  # seconds
_STREAM = {**PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True, "stream_interval": 1}
_KINDS = [Kind(name="a", path=COMPLETIONS, body=PROMPT, prompts=[], params=None)]


async def broken_request(target: Target, dice: Random) -> str:
    """As `lab.soak_http.broken` makes them: heads, JSON, types, numbers, sizes, schemas."""
    return _told(await ask(target.address, Asked(data=broken(dice, _KINDS).data)))


async def too_large(target: Target, dice: Random) -> str:
    """A body that says how large it is, or one that does not."""
    size = dice.choice((4_300_000, 6_000_000))
    if dice.random() < 0.5:
        return _told(await ask(target.address, Asked.post(COMPLETIONS, b" " * size, target.headers)))
    head = request(
        "POST",
        COMPLETIONS,
        None,
        {**target.headers, "Content-Type": "application/json", "Transfer-Encoding": "chunked"},
    )
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    return _told(await ask(target.address, Asked(data=head + chunk * (size // 65536) + b"0\r\n\r\n")))


async def large_head(target: Target, dice: Random) -> str:
    """Of 60 to 400 kB, at once or in pieces."""
    data = request(
        "GET", "/live", None, {"X": "a" * dice.choice((60_000, 70_000, 150_000, 400_000)), "Connection": "close"}
    )
    connection = await Connection.open(target.address)
    await connection.send(data, parts=dice.choice((1, 30)), pause=0.005)
    return await _head_of(connection)


async def slow_body(target: Target, dice: Random) -> str:
    """Half a body, and then nothing, or a byte now and then."""
    data = request("POST", COMPLETIONS, json.dumps(PROMPT).encode(), target.headers)
    connection = await Connection.open(target.address)
    await connection.send(data[:-9])
    for _ in range(int(HELD)):
        await connection.send(b" " if dice.random() < 0.3 else b"")
        await asyncio.sleep(1)
    connection.close(rudely=dice.random() < 0.5)
    return "left"


async def slow_head(target: Target, dice: Random) -> str:
    """A byte at a time."""
    connection = await Connection.open(target.address)
    for byte in b"GET /live HTTP/1.1\r\nHost: "[: int(HELD * 4)]:
        await connection.send(bytes((byte,)))
        await asyncio.sleep(0.25)
    connection.close(rudely=dice.random() < 0.5)
    return "left"


async def silent(target: Target, dice: Random) -> str:
    """Many connections over which nothing comes: over TLS, not even a handshake."""
    held = []
    for _ in range(dice.choice((10, 40, 120))):
        made = socket.socket()
        made.setblocking(False)
        try:
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(made, (target.host, target.port)), 5)
        except (OSError, TimeoutError):
            made.close()
            break
        held.append(made)
    await asyncio.sleep(dice.choice((1.0, HELD)))
    for made in held:
        made.close()
    return "left"


async def half_handshake(target: Target, dice: Random) -> str:
    """The beginning of a TLS greeting, or bytes that are none."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    writer.write(
        dice.choice((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", dice.randbytes(200), b"GET / HTTP/1.1\r\n\r\n"))
    )
    with suppress(TimeoutError, OSError):
        await asyncio.wait_for(reader.read(100), HELD)
    writer.close()
    return "left"


async def takes_nothing(target: Target, dice: Random) -> str:
    """A long stream that is not read."""
    connection = await Connection.open(target.address)
    body = {**_STREAM, "n": 8, "temperature": 1.0, "logprobs": 20}
    await connection.send(request("POST", COMPLETIONS, json.dumps(body).encode(), target.headers))
    await asyncio.sleep(HELD)
    connection.close(rudely=dice.random() < 0.5)
    return "left"


async def cancelled(target: Target, dice: Random) -> str:
    """Streams that are left after a few tokens, several at once."""

    async def one() -> None:
        connection = await Connection.open(target.address)
        await connection.send(request("POST", COMPLETIONS, json.dumps(_STREAM).encode(), target.headers))
        if dice.random() < 0.8:
            head, last = await connection.head(), dice.randrange(1, 9)
            async for _ in connection.events(head):
                last -= 1
                if last <= 0:
                    break
        connection.close(rudely=dice.random() < 0.5)

    await asyncio.gather(*(one() for _ in range(dice.choice((1, 4, 8)))), return_exceptions=True)
    return "left"


async def looks_around(target: Target, dice: Random) -> str:
    """What may be asked without a body."""
    path = dice.choice(
        ("/metrics", "/load", "/v1/models", "/kv_events?since=0", "/openapi.json", "/v1/models/" + "x" * 2000)
    )
    return _told(await ask(target.address, Asked.get(path, target.headers)))


async def wrong_key(target: Target, dice: Random) -> str:
    """A key that is none."""
    key = dice.choice(("", "B" * 100_00, "\x7f", "A "))
    return _told(await ask(target.address, Asked.post(COMPLETIONS, PROMPT, {"Authorization": f"Bearer {key}"})))


SOCKETS: Mapping[str, Callable[[Target, Random], Awaitable[str]]] = {
    "broken requests": broken_request,
    "413": too_large,
    "large heads": large_head,
    "slow bodies": slow_body,
    "slow heads": slow_head,
    "silent connections": silent,
    "half handshakes": half_handshake,
    "takes nothing": takes_nothing,
    "cancelled streams": cancelled,
    "looks around": looks_around,
    "wrong keys": wrong_key,
}


def _told(reply: object) -> str:
    return str(getattr(reply, "status", ""))


async def _head_of(connection: Connection) -> str:
    try:
        return str((await connection.head()).status)
    except BrokenError:
        return "broken off"
    finally:
        connection.close(rudely=True)
