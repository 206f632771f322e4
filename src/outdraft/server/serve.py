"""uvicorn around the application, and how a server ends.

SIGTERM or Ctrl-C       /ready says 503, new requests get 503, those under way have `drain_timeout` seconds
a second one            ends at once
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from outdraft.core.errors import ConfigError
from outdraft.server.app import make_app
from outdraft.server.certificate import Certificate
from outdraft.server.notify import tell_system
from outdraft.server.protocol import protocol_of
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings

_IDLE = 30  # seconds that a connection is kept for the next request


def check_address(host: str, port: int) -> None:
    """Raise `ConfigError` where nobody can listen, so that no model is loaded for it."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"port={port} is out of range: it must be 0 to 65535 (0 takes a free one)")
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        raise _unheard(host, port, error) from error


def _unheard(host: str, port: int, error: OSError) -> ConfigError:
    number = error.errno or 0  # below 0 about the name of the host
    why = os.strerror(number) if number > 0 else error.strerror
    return ConfigError(f"port {port} of {host} cannot be listened to ({why}): choose another one")


def shown_address(kind: str, host: str, port: int) -> str:
    """As a client opens it. `kind`: http or https."""
    return f"{kind}://[{host}]:{port}" if ":" in host else f"{kind}://{host}:{port}"


def serve(
    service: Service, *, host: str, port: int, certificate: Certificate | None, ready: Callable[[str], None]
) -> None:
    """Serve an engine until a signal ends it. `ready`: told the address when requests are taken."""
    serve_app(
        make_app(service), service.settings, service.drain, host=host, port=port, certificate=certificate, ready=ready
    )


def serve_app(
    app: ASGIApp, settings: ServerSettings, drain: Callable[[], Awaitable[None]], *, host: str, port: int,
    certificate: Certificate | None, ready: Callable[[str], None],
) -> None:  # fmt: skip
    """The same of any application. `drain`: takes nothing new from then on, and is over when what is under way is."""
    certfile, keyfile = (None, None) if certificate is None else (certificate.certfile, certificate.keyfile)
    config = _config(app, settings, host=host, port=port, ssl_certfile=certfile, ssl_keyfile=keyfile)
    asyncio.run(_Server(config, drain, ready).serve())


def make_config(service: Service, **where: Any) -> uvicorn.Config:
    """How uvicorn serves an engine. `where`: uvicorn's own settings of address and certificate."""
    return _config(make_app(service), service.settings, **where)


def _config(app: ASGIApp, settings: ServerSettings, **where: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app, http=protocol_of(settings), ws="none", log_level="critical", access_log=False,  # type: ignore[arg-type]
        server_header=False, lifespan="off", timeout_keep_alive=_IDLE, **where,
    )  # fmt: skip


class _Server(uvicorn.Server):
    """It listens while it drains, so that new requests are told why they are refused."""

    def __init__(
        self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]], ready: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._drain_app, self._ready = drain, ready
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        try:
            await super().startup(sockets)  # type: ignore[arg-type]
        except SystemExit as error:  # uvicorn has met an OSError
            assert isinstance(error.__context__, OSError)
            raise _unheard(self.config.host, self.config.port, error.__context__) from error
        port = self.servers[0].sockets[0].getsockname()[1]
        kind = "https" if self.config.is_ssl else "http"
        self._ready(shown_address(kind, self.config.host, port))
        tell_system("READY=1")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None:
            self.force_exit = self.should_exit = True
            return
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        tell_system("STOPPING=1")
        await self._drain_app()
        self.should_exit = True
