"""Bodies are JSON as RFC 8259 has it: UTF-8, without NaN and Infinity, without halves of characters or endless depth.

Python's own reader takes all of these, and they would come up again where an answer is written or a schema is read.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from outdraft.server.body_values import MOST_VALUES, check_values, seems_large

_SAID = {  # what orjson says, in the words of whoever wrote the text
    "surrogate": "a text in it has half a character (a surrogate that stands alone)",
    "not valid UTF-8": "it is not UTF-8",
    "depth": "its lists and tables are nested too deeply",
    "allocate": "its lists and tables are nested too deeply",  # in a body that is short
    "infinity": "a number in it is too large",
    "expected a JSON value": "something in it is no JSON value (NaN and Infinity are none)",
}


class StrictRequest(Request):
    """Raises `json.JSONDecodeError`, which FastAPI turns into its error of a body; `ApiError` for too many values."""

    async def json(self) -> Any:
        body, most = await self.body(), max(MOST_VALUES, 2 * self.app.state.max_len)
        if seems_large(body, most):
            await asyncio.to_thread(check_values, body, most)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            told = next((said for word, said in _SAID.items() if word in error.msg and _fits(word, body)), error.msg)
            raise json.JSONDecodeError(f"{told}, at character {error.pos}", "", error.pos) from None


class StrictRoute(APIRoute):
    """A route whose requests are read so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


def _fits(word: str, body: bytes) -> bool:
    """orjson names surrogates for bytes that are no UTF-8, too."""
    return word != "surrogate" or b"\\u" in body
