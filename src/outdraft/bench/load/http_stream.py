"""What a load asks of a server, by httpx: a JSON answer, and server-sent events as they arrive."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from outdraft.options.errors import ConfigError, OutdraftError

if TYPE_CHECKING:
    import httpx

SILENCE = 300.0  # seconds without a byte after which a server is given up


class HttpError(OutdraftError):
    """No connection, no answer, or one that says that it failed."""


class HttpClient:
    """Asks one server; each request has a connection of its own, so that a round leaves none behind.

    `url`: where its paths begin. Raises `ConfigError` where httpx is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ConfigError("a server is asked with httpx: pip install 'outdraft[bench]'") from error
        self._url = url
        trusted = ssl.create_default_context() if url.startswith("https:") else False  # the machine's certificates
        self._client = httpx.AsyncClient(
            verify=trusted,
            timeout=SILENCE,
            headers={"Accept-Encoding": "identity"},
            trust_env=False,  # a proxy would be measured too
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def read_json(self, path: str) -> Any:
        """The JSON document at `path`."""
        body = b"".join([part async for part in self._body("GET", path)])
        try:
            return json.loads(body)
        except ValueError as error:
            raise HttpError(f"{self._url}{path} is no JSON: {body[:80]!r}") from error

    async def read_events(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[str]:
        """The data of each event of the stream that answers this JSON body, without the final [DONE]."""
        rest = b""
        async for part in self._body("POST", path, json=body):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                name, _, value = line.decode("utf-8", "replace").strip().partition(":")
                if name == "data" and value.strip() != "[DONE]":
                    yield value.strip()

    async def _body(self, verb: str, path: str, **sent: Any) -> AsyncIterator[bytes]:
        """The parts of the body as they arrive. Raises `HttpError`."""
        import httpx

        try:
            async with self._client.stream(verb, f"{self._url}{path}", **sent) as reply:
                if reply.status_code != 200:
                    said = (await reply.aread()).decode("utf-8", "replace").strip()
                    raise HttpError(f"it answers {reply.status_code} to {path}: {said[:300] or 'nothing more'}")
                async for part in reply.aiter_bytes():
                    yield part
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise HttpError(f"no connection ({_why(error)})") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HttpError(f"the connection broke off ({_why(error)})") from error


def _why(error: "httpx.HTTPError | httpx.InvalidURL") -> str:
    return str(error) or type(error).__name__
