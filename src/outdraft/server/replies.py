"""JSON answers, written by orjson."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from outdraft.server.errors import ApiError


class JsonReply(Response):
    """A body of plain data. Numbers that JSON does not have (minus infinity of a log probability) become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def error_reply(error: ApiError, headers: Mapping[str, str] | None = None) -> JsonReply:
    """The reply that an error is."""
    return JsonReply(error.body, status_code=error.status, headers={**error.headers, **(headers or {})})
