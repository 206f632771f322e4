"""`GET /kv_events`: which prefixes the key/value cache holds, as lines of JSON, for routers; if it is turned on.

    {"event_id": 7, "type": "stored", "block_hash": "5be1...", "parent_block_hash": "0000...", "block_size": 16}

A router asks with `since`, the last id that it knows, and `wait`, seconds in which something may yet happen.
"""

import asyncio
from typing import Annotated

import orjson
from fastapi import FastAPI, Query
from starlette.responses import Response

from outdraft.cache.page_events import PageEvent
from outdraft.core.cache import PAGE
from outdraft.server.errors import ApiError
from outdraft.server.service import Service

_LOOKS = 0.05  # seconds from one look to the next


def add(app: FastAPI, service: Service) -> None:
    """Add this route to the app."""

    @app.get("/kv_events", tags=["health"], summary="Which prefixes the cache holds, for routers")
    async def kv_events(
        since: Annotated[int | None, Query(ge=0)] = None, wait: Annotated[float, Query(ge=0, le=60)] = 0
    ) -> Response:
        if service.page_events is None:
            raise ApiError(404, "this server does not report its cache: start it with --kv-events")
        found = service.page_events.since(since)
        while not found and wait > 0 and service.state == "ready":
            await asyncio.sleep(min(_LOOKS, wait))
            wait -= _LOOKS
            found = service.page_events.since(since)
        return Response(b"".join(map(_line, found)), media_type="application/jsonl")


def _line(event: PageEvent) -> bytes:
    told: dict[str, object] = {"event_id": event.id, "type": event.kind}
    if event.page is not None and event.before is not None:
        told |= {"block_hash": f"{event.page:016x}", "parent_block_hash": f"{event.before:016x}", "block_size": PAGE}
    return orjson.dumps(told) + b"\n"
