"""`outdraft serve --ray`: the front under our own HTTP server, in this process, before engines that Ray holds.

SIGTERM or Ctrl-C       as `outdraft serve` (`server/serve.py`); then Ray ends the engines
"""

from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray import serve

from outdraft.options.errors import ConfigError
from outdraft.server.fleet.front import Front
from outdraft.server.fleet.on_ray.application import make_engines
from outdraft.server.fleet.on_ray.fleet import RayFleet
from outdraft.server.fleet.on_ray.settings import ReplicaSettings
from outdraft.server.serve import Certificate, serve_app
from outdraft.server.settings import ServerSettings

NAME = "outdraft"  # of the application, among those of the cluster


def serve_on_ray(
    engine: Mapping[str, Any],
    server: ServerSettings,
    scale: ReplicaSettings,
    *,
    address: str | None,
    host: str,
    port: int,
    certificate: Certificate | None,
    ready: Callable[[str], None],
) -> None:
    """Serve until a signal ends it. `address`: of a Ray cluster; None: one on this machine, for as long as this lasts.

    Of a cluster that was there before, the other applications stay as they are.
    """
    local: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if address is None else {}
    try:
        ray.init(address=address or "local", namespace=NAME, **local)
    except ConnectionError as error:
        raise ConfigError(
            f"ray_address={address!r}: no Ray cluster answers there; start one, or leave it out"
        ) from error
    try:
        serve.start(proxy_location="Disabled")
        engines = serve.run(make_engines(engine, server, scale), name=NAME, route_prefix=None)
        front = Front(RayFleet(engines), server)
        serve_app(front, server, front.drain, host=host, port=port, certificate=certificate, ready=ready)
        serve.delete(NAME)
        if address is None:
            serve.shutdown()
    finally:
        ray.shutdown()
