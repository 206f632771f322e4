"""Deployments of Ray Serve: engines, each the application of `outdraft serve` behind a handle, and their front.

Ray starts it on some node, asks after its health, and lets requests under way finish before it ends it.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import torch

from outdraft.core.cores import count_cores
from outdraft.engine.llm import LLM
from outdraft.server.app import make_app
from outdraft.server.fleet.ask import Head, ProxiedRequest, ask_here
from outdraft.server.fleet.front import Front
from outdraft.server.fleet.on_ray.fleet import RayFleet
from outdraft.server.fleet.route_key import RouteKey
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings


class EngineReplica:
    """`engine`: the arguments of `LLM`.

    `own_threads`: it computes on as many cores of its machine as make a pass quicker, beside whatever else is busy, and
    not on as many as Ray has reserved, which would leave cores idle while another replica has nothing to do.
    """

    def __init__(self, engine: Mapping[str, Any], settings: ServerSettings, own_threads: bool) -> None:
        if own_threads:
            torch.set_num_threads(count_cores())
        self._llm = LLM(**engine)
        self._app = make_app(Service(self._llm, settings))

    async def answer(self, ask: ProxiedRequest, key: RouteKey) -> AsyncIterator[Head | bytes]:
        """The reply to a request, piece by piece. The key was for the router."""
        async with aclosing(ask_here(self._app, ask)) as pieces:
            async for piece in pieces:
                yield piece

    async def answer_whole(self, ask: ProxiedRequest, key: RouteKey) -> list[Head | bytes]:
        """The same at once: one answer of Ray's costs less than a stream of them."""
        return [piece async for piece in self.answer(ask, key)]

    def __del__(self) -> None:
        if hasattr(self, "_llm"):
            self._llm.close()


class AppReplica(EngineReplica):
    """The same with the application itself at the door: a plain deployment, without the front."""

    def __serve_build_asgi_app__(self) -> Any:
        """Ray asks for it once the engine is there."""
        return self._app


class FrontReplica:
    """The front as a deployment: the only one that Ray's HTTP proxy knows.

    `replicas`: Ray puts the handle of the engines here.
    """

    def __init__(self, replicas: Any, settings: ServerSettings) -> None:
        self._front = Front(RayFleet(replicas), settings)

    def __serve_build_asgi_app__(self) -> Any:
        """Ray asks for it once."""
        return self._front
