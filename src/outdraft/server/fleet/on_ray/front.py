"""The front as a deployment: the only one that Ray's HTTP proxy knows."""

from typing import Any

from outdraft.server.fleet.front import Front
from outdraft.server.fleet.on_ray.fleet import RayFleet
from outdraft.server.settings import ServerSettings


class FrontReplica:
    """`replicas`: Ray puts the handle of the engines here."""

    def __init__(self, replicas: Any, settings: ServerSettings) -> None:
        self._front = Front(RayFleet(replicas), settings)

    def __serve_build_asgi_app__(self) -> Any:
        """Ray asks for it once."""
        return self._front
