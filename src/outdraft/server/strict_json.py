"""Bodies are JSON as RFC 8259 has it: UTF-8, without NaN and Infinity, without halves of characters or endless depth.

Python's own reader takes all of these, and they would come up again where an answer is written or a schema is read.

Nor may a body hold any number of values: a reader of JSON makes an object of each, and no other thread runs meanwhile.
Four megabytes of text are read in milliseconds; four megabytes of small tables and lists take a second. They are
counted before anything is read, by the signs that stand between them, outside of texts.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from outdraft.server.errors import ApiError
from outdraft.server.schema.base import refuse

MOST_VALUES = 131_072  # of lists and tables together; or twice the context, where that is more
MOST_TABLES = 32_768  # members of tables, and lists, each
_PIECE = 1 << 16  # bytes that are looked at before other threads may have their turn
_LONG = 1 << 14  # bytes, which are checked within a millisecond
_SAID = {  # what orjson says, in the client's words
    "surrogate": "a text in it has half a character (a surrogate that stands alone)",
    "not valid UTF-8": "it is not UTF-8",
    "depth": "its lists and tables are nested too deeply",
    "allocate": "its lists and tables are nested too deeply",  # in a body that is short
    "infinity": "a number in it is too large",
    "expected a JSON value": "something in it is no JSON value (NaN and Infinity are none)",
}


class StrictRequest(Request):
    """No text is delivered while the event loop checks a body, so long ones are checked beside it.

    Raises `json.JSONDecodeError`, which FastAPI turns into its error of a body, and `ApiError` for a wrong long one.
    """

    model: type[BaseModel] | None = None  # of the body

    async def json(self) -> Any:
        body = await self.body()
        return self._read(body) if len(body) < _LONG else await asyncio.to_thread(self._checked, body)

    def _checked(self, body: bytes) -> Any:
        """The body as its model, which FastAPI takes as it is."""
        most = max(MOST_VALUES, 2 * self.app.state.max_len)
        if seems_large(body, most):
            check_values(body, most)
        data = self._read(body)
        try:
            return data if self.model is None else self.model.model_validate(data)
        except ValidationError as error:
            raise refuse([{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]) from None

    def _read(self, body: bytes) -> Any:
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            told = next((said for word, said in _SAID.items() if word in error.msg and _fits(word, body)), error.msg)
            raise json.JSONDecodeError(f"{told}, at character {error.pos}", "", error.pos) from None


class StrictRoute(APIRoute):
    """A route whose requests are read so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        model: Any = self.body_field.field_info.annotation if self.body_field else None

        async def handle_strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            strict.model = model
            return await handle(strict)

        return handle_strictly


def _fits(word: str, body: bytes) -> bool:
    """orjson names surrogates for bytes that are no UTF-8, too."""
    return word != "surrogate" or b"\\u" in body


def seems_large(body: bytes, most: int = MOST_VALUES) -> bool:
    """Whether it must be counted, as few bodies must: its texts may have all the signs."""
    return body.count(b",") >= most or body.count(b":") > MOST_TABLES or body.count(b"[") > MOST_TABLES


def check_values(body: bytes, most: int = MOST_VALUES) -> None:
    """Raise `ApiError` for more than `most` values, or more than `MOST_TABLES` members or lists."""
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    values, members, lists, is_text = 1, 0, 0, False
    for at in range(0, len(bare), _PIECE):
        parts = bare[at : at + _PIECE].split(b'"')
        for outside in parts[is_text::2]:
            values += outside.count(b",")
            members += outside.count(b":")
            lists += outside.count(b"[")
        is_text ^= len(parts) % 2 == 0
        for count, limit, told in (
            (values, most, "values"),
            (members, MOST_TABLES, "members of tables"),
            (lists, MOST_TABLES, "lists"),
        ):
            if count > limit:
                raise ApiError(
                    400,
                    f"the body holds more than {limit:,} {told}, and no more are taken: send less",
                    code="too_many_values",
                )
