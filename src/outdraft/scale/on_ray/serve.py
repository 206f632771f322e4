"""`outdraft serve --ray`: deploy, wait for a signal, drain.

SIGTERM or Ctrl-C       Ray takes no new request for the application; those under way have `drain_timeout` seconds
"""

import os
import signal
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

import ray
from ray import serve
from ray.serve.config import HTTPOptions

from outdraft.core.errors import ConfigError
from outdraft.scale.on_ray.application import make_application
from outdraft.scale.on_ray.settings import ReplicaSettings
from outdraft.server.certificate import Certificate
from outdraft.server.settings import ServerSettings

NAME = "outdraft"  # of the application, among those of the cluster
_LOOK = 0.5  # seconds; between them Python handles signals
# Of a cluster that is started here: each piece of a stream passes fewer threads on its way. Our code blocks no event
# loop, because the engine has a thread of its own.
_FEW_THREADS = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1000",
}


def serve_on_ray(
    engine: Mapping[str, Any], server: ServerSettings, scale: ReplicaSettings, *, address: str | None, host: str,
    port: int, certificate: Certificate | None, ready: Callable[[str], None],
) -> None:  # fmt: skip
    """Serve until a signal ends it. `address`: of a Ray cluster; None: one on this machine, for as long as this lasts.

    Of a cluster that was there before, the other applications stay as they are.
    """
    if not port:
        raise ConfigError("port=0 takes a free one only without --ray: name the port that Ray's proxy listens to")
    local: dict[str, Any] = {}
    if address is None:
        local = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        for name, value in _FEW_THREADS.items():  # Ray's processes inherit them
            os.environ.setdefault(name, value)
    try:
        ray.init(address=address or "local", namespace=NAME, **local)
    except ConnectionError as error:
        raise ConfigError(
            f"ray_address={address!r}: no Ray cluster answers there; start one, or leave it out"
        ) from error
    try:
        serve.start(proxy_location="HeadOnly", http_options=HTTPOptions(host=host, port=port, **_tls(certificate)))
        serve.run(make_application(engine, server, scale), name=NAME, route_prefix="/")
        ready(f"{'https' if certificate else 'http'}://{host}:{port}")
        _wait_for_signal()
        serve.delete(NAME)
        if address is None:
            serve.shutdown()
    finally:
        ray.shutdown()


def _tls(certificate: Certificate | None) -> dict[str, str]:
    """The certificate as Ray's HTTP options name it."""
    if certificate is None:
        return {}
    return {"ssl_certfile": str(certificate.certfile), "ssl_keyfile": str(certificate.keyfile)}


def _wait_for_signal() -> None:
    """Until SIGTERM or SIGINT; a second one has its usual effect."""
    came = Event()
    before: dict[int, Any] = {}

    def note(number: int, frame: object) -> None:
        came.set()
        for one, handler in before.items():
            signal.signal(one, handler)

    for one in (signal.SIGTERM, signal.SIGINT):
        before[one] = signal.signal(one, note)
    while not came.wait(_LOOK):
        pass
