"""uvicorn around the application, and how a server ends.

SIGTERM or Ctrl-C       /ready says 503, new requests get 503, those under way have `drain_timeout` seconds
then                    connections that are left, of clients that send or take nothing, are ended
a second one            ends at once
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from outdraft.options.errors import ConfigError
from outdraft.server.app import make_app
from outdraft.server.listener import Listener
from outdraft.server.protocol import LimitedProtocol
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings
from outdraft.server.upkeep import give_back_for_ever, prepare

_IDLE = 30  # seconds that a connection is kept for the next request
_LAST = 0.5  # seconds that connections have at least to end, once nothing is under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Two files in PEM; the first holds the whole chain. Raises `ConfigError` where they cannot be used together.

    They are looked at before a model is loaded for a server that could not serve.
    """

    certfile: Path
    keyfile: Path

    def __post_init__(self) -> None:
        for one in (self.certfile, self.keyfile):
            if not one.is_file():
                raise ConfigError(f"there is no file {one}: name the certificate and its private key, in PEM")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certfile, self.keyfile, password=self._refuse_password)
        except (ssl.SSLError, OSError) as error:
            told = getattr(error, "reason", None) or error
            raise ConfigError(
                f"{self.certfile} and {self.keyfile} are no certificate with its private key in PEM ({told}): name "
                "the pair that belongs together"
            ) from error

    def _refuse_password(self) -> str:
        """A server that starts by itself can be asked for none."""
        raise ConfigError(f"{self.keyfile} is encrypted: openssl pkey -in {self.keyfile} -out PLAIN writes it without")


def check_address(host: str, port: int) -> None:
    """Raise `ConfigError` for an address that cannot be listened on, so that no model is loaded for it."""
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
    """Serve an engine until a signal ends it. `ready`: given the address when requests are taken."""
    serve_app(
        make_app(service), service.settings, service.drain, host=host, port=port, certificate=certificate, ready=ready
    )


def serve_app(
    app: ASGIApp,
    settings: ServerSettings,
    drain: Callable[[], Awaitable[None]],
    *,
    host: str,
    port: int,
    certificate: Certificate | None,
    ready: Callable[[str], None],
) -> None:
    """The same of any application. `drain`: takes nothing new from then on, and is over when what is under way is."""
    certfile, keyfile = (None, None) if certificate is None else (certificate.certfile, certificate.keyfile)
    config = _config(app, settings, host=host, port=port, ssl_certfile=certfile, ssl_keyfile=keyfile)
    asyncio.run(_Server(config, settings, drain, ready).serve())


def make_config(service: Service, **where: Any) -> uvicorn.Config:
    """How uvicorn serves an engine. `where`: uvicorn's own settings of address and certificate."""
    return _config(make_app(service), service.settings, **where)


def _config(app: ASGIApp, settings: ServerSettings, **where: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=partial(LimitedProtocol, settings=settings),  # type: ignore[arg-type]
        ws="none",
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=_IDLE,
        **where,
    )


class _Server(uvicorn.Server):
    """It listens while it drains, so that new requests learn why they are refused."""

    def __init__(
        self,
        config: uvicorn.Config,
        settings: ServerSettings,
        drain: Callable[[], Awaitable[None]],
        ready: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self._settings, self._drain_app, self._ready = settings, drain, ready
        self._draining: asyncio.Task[None] | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._end = 0.0  # of the time for a drain, once it has begun

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """With listeners of our own. Raises `ConfigError` for an address that is taken."""
        config, loop = self.config, asyncio.get_running_loop()
        prepare()
        self._upkeep = loop.create_task(give_back_for_ever())
        try:
            bound = await loop.create_server(self._connect, config.host, config.port, start_serving=False)
        except OSError as error:
            raise _unheard(config.host, config.port, error) from error
        listening = [one.dup() for one in bound.sockets]
        bound.close()
        for one in listening:
            one.listen(config.backlog)
        most, handshake = self._settings.max_connections, self._settings.head_timeout
        listeners: list[Any] = [  # uvicorn closes them, and asks nothing else of them
            Listener(
                one,
                self._connect,
                config.ssl,
                most=most,
                handshake=handshake,
                num_open=lambda: len(self.server_state.connections),
            )
            for one in listening
        ]
        self.servers = listeners
        self.started = True
        port = self.servers[0].sockets[0].getsockname()[1]
        kind = "https" if self.config.is_ssl else "http"
        self._ready(shown_address(kind, self.config.host, port))
        tell_system("READY=1")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None:
            self.force_exit = self.should_exit = True
            return
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """uvicorn's own waits for every client; here they have what is left of the time for a drain."""
        ending = asyncio.ensure_future(super().shutdown(sockets))  # type: ignore[arg-type]
        await asyncio.wait([ending], timeout=max(_LAST, self._end - monotonic()))
        self.force_exit = True
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
        await ending

    def _connect(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state={}, _loop=asyncio.get_running_loop())

    async def _drain(self) -> None:
        tell_system("STOPPING=1")
        self._end = monotonic() + self._settings.drain_timeout
        await self._drain_app()
        self.should_exit = True


def tell_system(state: str) -> None:
    """Report to systemd how the server is, where systemd has asked (`Type=notify`): READY=1, STOPPING=1.

    One line to the socket that NOTIFY_SOCKET names; nothing where there is none.
    https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@") or not hasattr(socket, "AF_UNIX"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(f"\0{address[1:]}" if address[0] == "@" else address)  # "@": a name that is no file
        line.sendall(state.encode())
