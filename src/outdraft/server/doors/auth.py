"""API keys: `Authorization: Bearer KEY`. Only hashes are held, and all are compared, in the same time for every guess.

Guarded is what writes or reads text; open are the page, questions after the health, metrics, and OPTIONS.
Data out: `outdraft.salt` in the scope, which separates what one key's requests leave behind from another key's.
"""

import os
from collections.abc import Sequence as Seq
from hashlib import sha256
from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from outdraft.server.connection import error_reply
from outdraft.server.errors import ApiError

_GUARDED = ("/v1", "/v2", "/inference", "/tokenize", "/detokenize", "/load", "/kv_events")


class Auth:
    """Without keys every client may ask, and all share one salt. `secret`: salts are the same after a restart."""

    def __init__(self, app: ASGIApp, keys: Seq[str], secret: bytes | None = None) -> None:
        self._app = app
        self._hashes = [sha256(key.encode("utf-8", "surrogateescape")).digest() for key in keys]
        self._secret = secret or os.urandom(16)  # so that a salt shows nothing of its key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._hashes and scope["method"] != "OPTIONS" and _is_guarded(scope["path"]):
            given = Headers(scope=scope).get("authorization", "")
            known = self._find(given)
            if known is None:
                told = "the key is not known here" if given else "this server wants a key"
                error = ApiError(
                    401,
                    f"{told}: send the header Authorization: Bearer KEY",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await error_reply(error)(scope, receive, send)
                return
            scope["outdraft.salt"] = sha256(self._secret + known).hexdigest()
        await self._app(scope, receive, send)

    def _find(self, given: str) -> bytes | None:
        kind, _, key = given.partition(" ")
        hashed, found = sha256(key.strip().encode("latin-1")).digest(), None  # as headers are read: byte for byte
        for one in self._hashes:
            if compare_digest(one, hashed):  # no early exit
                found = one
        return found if kind.lower() == "bearer" else None


def _is_guarded(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in _GUARDED)
