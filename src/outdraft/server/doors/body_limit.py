"""A body that is larger than the server takes is refused: by its Content-Length before a byte of it is read, or when
more has come than was allowed."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outdraft.server.errors import ApiError
from outdraft.server.replies import error_reply


class BodyLimit:
    """`most`: bytes."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "0")
        if said.isdigit() and int(said) > self._most:
            await error_reply(self._error())(scope, receive, send)
            return
        size = 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._most:
                raise self._error()
            return message

        await self._app(scope, limited, send)

    def _error(self) -> ApiError:
        return ApiError(
            413, f"the body is larger than the {self._most} bytes that this server takes", code="body_too_large"
        )
