"""Is it alive, is it ready: what balancers and orchestrators ask, without a key.

/live     200 as long as the process answers, also while it drains
/ready    200 while new requests are taken       /health   the same
"""

from fastapi import FastAPI
from starlette.responses import Response

from outdraft.server.replies import JsonReply
from outdraft.server.service import Service


def add(app: FastAPI, service: Service) -> None:
    """Add these routes to the app."""

    @app.get("/live", tags=["health"], summary="Whether the process answers")
    async def live() -> Response:
        return JsonReply({"status": service.state})

    @app.get("/ready", tags=["health"], summary="Whether new requests are taken")
    async def ready() -> Response:
        return JsonReply({"status": service.state}, status_code=200 if service.state == "ready" else 503)

    @app.get("/health", tags=["health"], summary="The same as /ready")
    async def health() -> Response:
        return await ready()
