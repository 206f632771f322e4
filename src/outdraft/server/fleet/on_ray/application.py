"""What is deployed.

                         front --> AffinityRouter --> engine, engine, ...       `make_engines`
    HTTP proxy (Ray) --> front --> AffinityRouter --> engine, engine, ...       `make_application`
    HTTP proxy (Ray) --> engine, engine, ...                                    `make_plain_application`

The first is for a front that is not Ray's, as that of `outdraft serve --ray` is (`serve.py`).

The plain one is `outdraft serve` as an ordinary deployment: Ray chooses the replica, and what dies with it is the
client's to ask again.
"""

import os
from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig

from outdraft.server.fleet.on_ray.replica import AppReplica, EngineReplica, FrontReplica
from outdraft.server.fleet.on_ray.router import AffinityRouter
from outdraft.server.fleet.on_ray.settings import ReplicaSettings
from outdraft.server.settings import ServerSettings

_FRONT_REQUESTS = 10_000  # under way in the front, which does little for each
_LOG = {"enable_access_log": False}  # every engine logs its requests itself
_HEAD = {"node:__internal_head__": 0.001}  # the front is where Ray's HTTP proxy is: one goes only with the other


def make_engines(engine: Mapping[str, Any], server: ServerSettings, scale: ReplicaSettings) -> serve.Application:
    """Engines alone, to be asked through a handle. `engine`: the arguments of `LLM`."""
    routed = {"request_router_config": RequestRouterConfig(request_router_class=AffinityRouter)}
    options = _options(server, scale) | (routed if scale.affinity else {})
    made = serve.deployment(EngineReplica).options(name="engine", **options)
    return made.bind({**engine}, server, _own_threads())


def make_application(engine: Mapping[str, Any], server: ServerSettings, scale: ReplicaSettings) -> serve.Application:
    """Engines behind a front."""
    front = serve.deployment(serve.ingress()(FrontReplica)).options(
        name="front",
        ray_actor_options={"num_cpus": 0, "resources": _HEAD},
        max_ongoing_requests=_FRONT_REQUESTS,
        graceful_shutdown_timeout_s=server.drain_timeout,
        logging_config=_LOG,
    )
    return front.bind(make_engines(engine, server, scale), server)


def make_plain_application(
    engine: Mapping[str, Any], server: ServerSettings, scale: ReplicaSettings
) -> serve.Application:
    """The same engines, each at the door itself."""
    made = serve.deployment(serve.ingress()(AppReplica)).options(name="outdraft", **_options(server, scale))
    return made.bind({**engine}, server, _own_threads())


def _own_threads() -> bool:
    """Whether a replica chooses its number of threads: not where the environment says it."""
    return "OMP_NUM_THREADS" not in os.environ


def _options(server: ServerSettings, scale: ReplicaSettings) -> dict[str, Any]:
    """The settings of a deployment, in Ray's words."""
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": scale.cpus},
        "max_ongoing_requests": scale.max_ongoing_requests,
        "health_check_period_s": scale.health_check_period,
        "graceful_shutdown_timeout_s": server.drain_timeout,
        "logging_config": _LOG,
    }
    if scale.max_replicas is None:
        return {**options, "num_replicas": scale.replicas}
    return {
        **options,
        "autoscaling_config": {
            "min_replicas": scale.replicas,
            "max_replicas": scale.max_replicas,
            "target_ongoing_requests": scale.target_ongoing_requests,
        },
    }
