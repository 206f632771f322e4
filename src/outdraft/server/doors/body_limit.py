"""A body that is larger than the server takes, that takes too long to come, or that is compressed, is refused.

Its size is known by its Content-Length before a byte of it is read, or when more has come than is allowed. A body that
ends before its Content-Length never reaches an endpoint: the client has hung up.
"""

import asyncio
from time import monotonic

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outdraft.server.connection import error_reply
from outdraft.server.errors import ApiError, overloaded

SIZE = "outdraft.body_size"  # in the scope: bytes of the body that have come
_BODIES = 64


class BodyLimit:
    """`most`: bytes. `seconds`: from the head of a request to the end of its body.

    The bodies of all requests that are under way may have `_BODIES` times as much together.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app, self._most, self._seconds = app, most, seconds
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        said, codings = headers.get("content-length", "0"), ", ".join(headers.getlist("content-encoding"))
        coding = ", ".join(one for each in codings.split(",") if (one := each.strip()).lower() not in ("", "identity"))
        if said.isdigit() and int(said) > self._most:
            await error_reply(self._too_large())(scope, receive, send)
            return
        size, has_come, end = 0, False, monotonic() + self._seconds

        async def limited() -> Message:
            nonlocal size, has_come
            if has_come:  # what comes now is the client's leaving
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - monotonic()))
            except TimeoutError:
                raise ApiError(
                    408,
                    f"the body did not come within {self._seconds:g} seconds: send it at once",
                    code="body_too_slow",
                    headers={"Connection": "close"},
                ) from None
            come = len(message.get("body", b""))
            size, self._held = size + come, self._held + come
            scope[SIZE] = size
            has_come = not message.get("more_body", False)
            if size > self._most:
                raise self._too_large()
            if come and coding:
                raise ApiError(
                    415,
                    f"a body with Content-Encoding: {coding:.40} is not read here: send it as it is, without that "
                    "header",
                    headers={"Accept-Encoding": "identity"},
                )
            if self._held > self._most * _BODIES:
                raise overloaded("the bodies of all requests together are as large as the server takes: come later")
            return message

        try:
            await self._app(scope, limited, send)
        finally:
            self._held -= size

    def _too_large(self) -> ApiError:
        return ApiError(
            413, f"the body is larger than the {self._most} bytes that this server takes", code="body_too_large"
        )
