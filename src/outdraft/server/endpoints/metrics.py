"""`GET /metrics`, for Prometheus, and `GET /load`, the same in short: how much is under way.

/metrics needs no key, as scrapers have none; it holds numbers and the model's name. /load is behind the key.
"""

from fastapi import FastAPI
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from outdraft.server.replies import JsonReply
from outdraft.server.service import Service


def add(app: FastAPI, service: Service) -> None:
    """Add these routes to the app."""

    @app.get("/metrics", tags=["health"], summary="Counters and times, for Prometheus")
    def metrics(request: Request) -> Response:
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(service.instruments.registry), headers={"Content-Type": kind})

    @app.get("/load", tags=["health"], summary="How much is under way")
    async def load() -> Response:
        return JsonReply({"server_load": service.num_under_way, **service.load})
