"""uvicorn around the application, and how a server ends.

SIGTERM or Ctrl-C       /ready says 503, new requests get 503, those under way have `drain_timeout` seconds
a second one            ends at once
"""

import asyncio
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from outdraft.core.errors import ConfigError
from outdraft.server.app import make_app
from outdraft.server.certificate import Certificate
from outdraft.server.notify import tell_system
from outdraft.server.protocol import protocol_of
from outdraft.server.service import Service

_IDLE = 30  # seconds that a connection is kept for the next request


def serve(
    service: Service, *, host: str, port: int, certificate: Certificate | None, ready: Callable[[str], None]
) -> None:
    """Serve until a signal ends it. `ready`: told the address when requests are taken."""
    certfile, keyfile = (None, None) if certificate is None else (certificate.certfile, certificate.keyfile)
    config = make_config(service, host=host, port=port, ssl_certfile=certfile, ssl_keyfile=keyfile)
    asyncio.run(_Server(config, service, ready).serve())


def make_config(service: Service, **where: Any) -> uvicorn.Config:
    """How uvicorn serves it. `where`: uvicorn's own settings of address and certificate."""
    return uvicorn.Config(
        make_app(service), http=protocol_of(service.settings), ws="none", log_level="critical", access_log=False,  # type: ignore[arg-type]
        server_header=False, lifespan="off", timeout_keep_alive=_IDLE, **where,
    )  # fmt: skip


class _Server(uvicorn.Server):
    """It listens while it drains, so that new requests are told why they are refused."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._service, self._ready = service, ready
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        try:
            await super().startup(sockets)  # type: ignore[arg-type]
        except SystemExit as error:  # uvicorn has met an OSError
            raise ConfigError(
                f"port {self.config.port} of {self.config.host} cannot be listened to: choose another one"
            ) from error
        port = self.servers[0].sockets[0].getsockname()[1]
        kind = "https" if self.config.is_ssl else "http"
        self._ready(f"{kind}://{self.config.host}:{port}")
        tell_system("READY=1")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None:
            self.force_exit = self.should_exit = True
            return
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        tell_system("STOPPING=1")
        await self._service.drain()
        self.should_exit = True
