"""What the server says of itself: its models, its health, its load, and what its cache holds.

/live is answered with 200 also while the server drains, /ready and /health while new requests are taken.

Balancers, orchestrators and scrapers have no key, so /live, /ready, /health and /metrics need none: they hold numbers
and the model's name. A router asks /kv_events with `since`, the last id that it knows, and `wait`, seconds in which
something may yet happen:

    {"event_id": 7, "type": "stored", "block_hash": "5be1...", "parent_block_hash": "0000...", "block_size": 16}
"""

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Query
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from outdraft.cache.page_events import PageEvent
from outdraft.core.cache import PAGE
from outdraft.server.connection import JsonReply
from outdraft.server.errors import ApiError
from outdraft.server.service import Service

_LOOKS = 0.05  # seconds from one look at the cache to the next


def add(app: FastAPI, service: Service) -> None:
    """Add these routes to the app."""
    names = service.settings.served_model_name

    @app.get("/v1/models", tags=["about"], summary="What is served")
    async def models() -> Response:
        return JsonReply({"object": "list", "data": [_model(service, name) for name in names]})

    @app.get("/v1/models/{model:path}", tags=["about"], summary="One of them")
    async def model(model: str) -> Response:
        if model not in names:
            known = ", ".join(names)
            raise ApiError(404, f"the model {model!r:.100} is not served here; served: {known}", code="model_not_found")
        return JsonReply(_model(service, model))

    @app.get("/live", tags=["health"], summary="Whether the process answers")
    async def live() -> Response:
        return JsonReply({"status": service.state})

    @app.get("/ready", tags=["health"], summary="Whether new requests are taken")
    async def ready() -> Response:
        return JsonReply({"status": service.state}, status_code=200 if service.state == "ready" else 503)

    @app.get("/health", tags=["health"], summary="The same as /ready")
    async def health() -> Response:
        return await ready()

    @app.get("/metrics", tags=["health"], summary="Counters and times, for Prometheus")
    def metrics(request: Request) -> Response:
        if service.adapt_instruments is not None:
            service.adapt_instruments.update()
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(service.instruments.registry), headers={"Content-Type": kind})

    @app.get("/v1/adapt", tags=["about"], summary="How a draft that learns fares")
    def adapt() -> Response:
        if service.llm.adapting is None:
            raise ApiError(404, "the draft of this server does not learn: start it with --adapt")
        told = service.llm.adapting.status().items()  # without places of this machine, and without other tenants
        return JsonReply({key: value for key, value in told if key not in ("room", "tenants")})

    @app.get("/load", tags=["health"], summary="How much is under way")
    async def load() -> Response:
        return JsonReply({"server_load": service.num_under_way, **service.load})

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


def _model(service: Service, name: str) -> dict[str, Any]:
    config, formats = service.llm.config, service.formats
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "outdraft",
        "root": config["model"],
        "max_model_len": config["max_model_len"],
        "chat_template": getattr(service.llm.tokenizer, "chat_template", None) is not None,
        "variant": config["variant"],
        "speculative": service.speculation,
        "lossless": service.llm.lossless,
        "adapts": service.llm.adapting is not None,
        "tool_call_parser": formats.tools.name if formats.tools else None,
        "reasoning_parser": formats.reasoning.name if formats.reasoning else None,
    }


def _line(event: PageEvent) -> bytes:
    told: dict[str, object] = {"event_id": event.id, "type": event.kind}
    if event.page is not None and event.before is not None:
        told |= {"block_hash": f"{event.page:016x}", "parent_block_hash": f"{event.before:016x}", "block_size": PAGE}
    return orjson.dumps(told) + b"\n"
