"""One request on its way through the front: asked of a replica, and of another one where that dies."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace

import orjson

from outdraft.server.connection import event
from outdraft.server.errors import ApiError
from outdraft.server.fleet.ask import Fleet, Head, ProxiedRequest, ReplicaLost
from outdraft.server.fleet.cut_stream import CutStream
from outdraft.server.fleet.route_key import RouteKey

ATTEMPTS = 4  # replicas that may die under one request
_LOST = "the engine that answered has died, and so have others that were asked in its place: ask again"
_log = logging.getLogger("outdraft.server.fleet")


@dataclass(slots=True)
class RelayTally:
    """What a front has done since it began."""

    requests: int = 0
    replicas_lost: int = 0  # under a request
    streams_resumed: int = 0  # by another replica, behind what was sent


class Relay:
    """`stream`: of a request that can go on in the middle. `tally` counts."""

    def __init__(
        self, fleet: Fleet, ask: ProxiedRequest, key: RouteKey, stream: CutStream | None, tally: RelayTally
    ) -> None:
        self._fleet, self._ask, self._key, self._stream, self._tally = fleet, ask, key, stream, tally
        tally.requests += 1
        self._pieces: AsyncIterator[Head | bytes] | None = None
        self._left = ATTEMPTS
        self.head = Head(503)

    async def begin(self) -> Head:
        """Ask, until a replica answers. Raises `ApiError` where none does."""
        while True:
            self._left -= 1
            ask = self._ask if self._stream is None else replace(self._ask, body=self._stream.body())
            self._pieces = self._fleet.send(ask, self._key)
            try:
                head = await anext(self._pieces)
                assert isinstance(head, Head)
                self.head = head
                return head
            except ReplicaLost as error:
                await self._lost(error)

    async def whole(self) -> bytes:
        """The whole body of a reply, of which nothing has been sent yet; `head` is its own."""
        while True:
            try:
                return b"".join([piece async for piece in self._rest()])
            except ReplicaLost as error:
                await self._lost(error)
            await self.begin()

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events of a stream, each of them once."""
        try:
            while True:
                try:
                    async for one in _events(self._rest()):
                        if (new := self._new(one)) is not None:
                            yield new
                    return
                except ReplicaLost as error:
                    if self._stream is None:
                        raise ApiError(503, _LOST, code="engine_lost") from error
                    self._stream.again()
                    await self._lost(error)
                if not (await self.begin()).is_stream:
                    raise ApiError(503, _LOST, code="engine_lost")
                self._tally.streams_resumed += 1
        finally:
            await self.close()

    async def close(self) -> None:
        pieces, self._pieces = self._pieces, None
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()

    async def _rest(self) -> AsyncIterator[bytes]:
        assert self._pieces is not None
        async for piece in self._pieces:
            assert isinstance(piece, bytes)
            yield piece

    async def _lost(self, error: ReplicaLost) -> None:
        await self.close()
        self._tally.replicas_lost += 1
        _log.warning("a replica was lost under %s: %s", self._ask.path, error)
        if self._left <= 0:
            raise ApiError(503, _LOST, code="engine_lost", headers={"Retry-After": "5"}) from error

    def _new(self, one: bytes) -> bytes | None:
        if self._stream is None or not one.startswith(b"data: {"):
            return one
        told = self._stream.take(orjson.loads(one[6:]))
        return None if told is None else event(told)


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Pieces of any size, cut where events end. What a dead replica left half said is dropped."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        for one in whole:
            yield one + b"\n\n"
