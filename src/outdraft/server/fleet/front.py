"""The application before a fleet of engines: every request goes to one of them, and none is lost with it.

    whole replies   are sent on when they are whole; if their replica dies before, another one is asked
    streams         are sent on as they come; if their replica dies, another one goes on behind what was sent
                    (`cut_stream.py`). One that cannot go on ends with an error, as a stream of `outdraft serve` does

`GET /front` reports how often that has happened. What the replicas refuse, and how, is theirs to say: keys, fields,
limits. Before them stand two limits, of a body's size and of the time in which it must come, because bodies are read
here.
"""

import asyncio
import logging
from dataclasses import asdict

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outdraft.server.connection import EventStream, JsonReply, error_reply, unless_gone
from outdraft.server.doors.body_limit import BodyLimit
from outdraft.server.errors import ApiError, draining, told
from outdraft.server.fleet.ask import Fleet, ProxiedRequest
from outdraft.server.fleet.cut_stream import CutStream, can_resume
from outdraft.server.fleet.relay import Relay, RelayTally
from outdraft.server.fleet.route_key import route_key
from outdraft.server.settings import ServerSettings

_log = logging.getLogger("outdraft.server.fleet")
_OF_CONNECTION = (b"content-length", b"transfer-encoding", b"connection", b"date", b"server")


class Front:
    """The ASGI application. `settings`: those that the replicas have."""

    def __init__(self, fleet: Fleet, settings: ServerSettings) -> None:
        self._fleet, self._tally = fleet, RelayTally()
        self._limited = BodyLimit(self._serve, most=settings.max_body_bytes, seconds=settings.body_timeout)
        self._drain_timeout = settings.drain_timeout
        self._is_draining = False
        self._open: set[asyncio.Task[object]] = set()  # of requests under way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        running = asyncio.ensure_future(self._limited(scope, receive, send))
        self._open.add(running)
        try:
            await running
        finally:
            self._open.discard(running)

    async def drain(self) -> None:
        """Take nothing new, and wait for what is under way; cancel it when its time is over."""
        self._is_draining = True
        if self._open:
            _, late = await asyncio.wait(self._open, timeout=self._drain_timeout)
            for one in late:
                one.cancel()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        if request.method in ("GET", "HEAD") and request.url.path == "/front":
            await JsonReply(asdict(self._tally))(scope, receive, send)
            return
        try:
            if self._is_draining and (request.method not in ("GET", "HEAD") or request.url.path == "/ready"):
                raise draining("takes no new request")
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except HTTPException as error:  # of the body limit
            known = error.__cause__ if isinstance(error.__cause__, ApiError) else None
            response = error_reply(known or ApiError(error.status_code, str(error.detail)))
        except Exception as error:
            if not isinstance(error, ApiError):
                _log.exception("the front broke under %.100r", request.url.path)
            response = error_reply(told(error))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        try:
            read = orjson.loads(body)
        except orjson.JSONDecodeError:
            read = None  # the replica says what is wrong with it
        ask = ProxiedRequest(
            method=request.method,
            path=request.url.path,
            query=request.scope["query_string"],
            headers=tuple(request.scope["headers"]),
            body=body,
            client=request.scope.get("client"),
            streams=isinstance(read, dict) and read.get("stream") is True,
        )
        stream = CutStream(ask.path, read) if can_resume(ask.path, read) else None
        relay = Relay(self._fleet, ask, route_key(read, ask.header(b"authorization")), stream, self._tally)
        try:
            head = await unless_gone(request, relay.begin())
            headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in head.headers
                if name.lower() not in _OF_CONNECTION
            }
            if head.is_stream:
                made = EventStream(relay.events(), close=lambda: None, keep_alive=0)  # its end closes the relay
                made.headers.update(headers)
                return made
            whole = await unless_gone(request, relay.whole())
            return Response(whole, status_code=relay.head.status, headers=headers)
        except BaseException:
            await relay.close()
            raise
