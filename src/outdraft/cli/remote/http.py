"""One running server, asked over HTTP: JSON, and streams of server-sent events.

Errors are one sentence with the cure: the server's own where it has answered, ours where it is not there.
"""

import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from outdraft.options.errors import ConfigError, RequestError

PATIENCE = 120.0  # seconds of silence; outdraft's server sends a comment after 15


class RemoteServer:
    """`url`: with or without http:// and /v1. `key`: None: the first one of OUTDRAFT_API_KEY, if there is any."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self._at = _read_url(url)
        self.url = f"{self._at.scheme}://{self._at.netloc}{self._at.path}"
        known = key if key is not None else os.environ.get("OUTDRAFT_API_KEY", "").split(",")[0]
        if not (known.isascii() and known.isprintable()):
            raise ConfigError("api_key holds a sign that no header can: give the key as the server knows it")
        self._headers = {"Authorization": f"Bearer {known}"} if known else {}

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The whole reply to a GET, or with a body to a POST.

        Raises `ConfigError` where the server is not there, or `RequestError` with what it says.
        """
        with self._asked(path, body) as reply:
            try:
                return json.loads(reply.read())
            except ValueError as error:
                raise self._stranger() from error

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The pieces of a streamed reply, up to its end. Raises as `ask` does; leaving it ends the request."""
        with self._asked(path, {**body, "stream": True}) as reply:
            for line in iter(reply.readline, b""):
                name, _, data = line.decode().strip().partition(":")
                if name != "data":
                    continue
                if data.strip() == "[DONE]":
                    return
                piece = json.loads(data)
                if "error" in piece:
                    raise RequestError(_message(piece) or "the answer broke off")
                yield piece
        raise RequestError(f"the connection to {self.url} ended before the answer did: ask again")

    @contextmanager
    def _asked(self, path: str, body: Mapping[str, Any] | None) -> Iterator[HTTPResponse]:
        kind = HTTPSConnection if self._at.scheme == "https" else HTTPConnection
        connection = kind(self._at.hostname or "", self._at.port, timeout=PATIENCE)
        try:
            data = None if body is None else json.dumps(body)
            headers = {**self._headers, **({} if body is None else {"Content-Type": "application/json"})}
            connection.request("GET" if body is None else "POST", f"{self._at.path}{path}", data, headers)
            reply = connection.getresponse()
            if reply.status != 200:
                self._refuse(reply)
            yield reply
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"the certificate of {self.url} is not trusted here ({error.verify_message}): name a file with one "
                "that is, SSL_CERT_FILE=cert.pem"
            ) from error
        except TimeoutError as error:
            raise ConfigError(f"{self.url} has been silent for {PATIENCE:.0f} s: ask again, or look at it") from error
        except (OSError, HTTPException) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            raise ConfigError(
                f"no server answers at {self.url} ({why}): start one with `outdraft serve`, or name where it listens"
            ) from error
        finally:
            connection.close()

    def _refuse(self, reply: HTTPResponse) -> None:
        try:
            told = _message(json.loads(reply.read()))
        except ValueError:
            told = None
        if told is None:
            raise self._stranger(f" (status {reply.status})")
        cure = ": give the key as --api-key KEY, or in OUTDRAFT_API_KEY" if reply.status == 401 else ""
        raise RequestError(f"{told.partition(': send')[0] if cure else told}{cure}")

    def _stranger(self, more: str = "") -> ConfigError:
        return ConfigError(f"what answers at {self.url} is no server with OpenAI's API{more}: name another address")


def _read_url(url: str) -> SplitResult:
    cure = f"server={url!r}: write an address such as http://127.0.0.1:8000"
    try:
        at = urlsplit(url if "://" in url else f"http://{url}")
        port = at.port
    except ValueError as error:
        raise ConfigError(f"{cure} ({error})") from error
    if at.scheme not in ("http", "https") or not at.hostname or port == 0:
        raise ConfigError(cure)
    return at._replace(path=at.path.rstrip("/").removesuffix("/v1"), query="", fragment="")


def _message(told: Any) -> str | None:
    """Of an error in OpenAI's shape; some servers' are flat."""
    error = told.get("error", told) if isinstance(told, dict) else None
    message = error.get("message") if isinstance(error, dict) else error if isinstance(error, str) else None
    return " ".join(message.split()) if isinstance(message, str) and message.strip() else None
