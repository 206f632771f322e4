"""GET /openapi.json says what is answered: the replies of each endpoint, streams, and errors with their statuses.

Requests are described by their own schemas (`schema/`); what FastAPI would say of replies (an error 422 in a shape of
its own) is not what this server sends.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

_ERRORS = {
    400: "What was sent cannot be used; the message names the field",
    401: "The key is missing, or not known",
    404: "There is no such thing here",
    408: "The body did not come in time",
    413: "The body is too large",
    415: "The body is not sent as application/json, or is compressed",
    429: "Too many requests of this key",
    500: "The answer broke off",
    503: "Too much is under way, or the server is about to end",
}


def _choices(*required: str) -> dict[str, Any]:
    fields = {"index": _COUNT, "finish_reason": _PERHAPS}
    entry = {"type": "object", "required": ["index", "finish_reason", *required], "properties": fields}
    return {"choices": {"type": "array", "items": entry}, "usage": _USAGE}


def _table(kind: str | None = None, **fields: Any) -> dict[str, Any]:
    """A reply that has these fields, and perhaps more."""
    named = {"object": {"const": kind}, **fields} if kind else fields
    return {"type": "object", "required": [*named], "properties": named}


def _closed(**fields: Any) -> dict[str, Any]:
    """A table that has these fields, and no others."""
    return {**_table(**fields), "additionalProperties": False}


_SAID, _PERHAPS, _COUNT = {"type": "string", "minLength": 1}, {"type": ["string", "null"]}, {"type": "integer"}
_ERROR = _closed(error=_closed(message=_SAID, type=_SAID, param=_PERHAPS, code=_PERHAPS))
_USAGE = _table(prompt_tokens=_COUNT, completion_tokens=_COUNT, total_tokens=_COUNT)
_TEXT, _NUMBER, _IDS = {"type": "string"}, {"type": "number"}, {"type": "array", "items": _COUNT}
_MODEL = _table("model", id=_TEXT, created=_COUNT, owned_by=_TEXT)
_STATE = _table(status={"enum": ["ready", "draining"]})
_HEADED = {"id": _TEXT, "created": _COUNT, "model": _TEXT}
_REPLIES: Mapping[str, dict[str, Any]] = {
    "/v1/completions": _table("text_completion", **_HEADED, **_choices("text")),
    "/v1/chat/completions": _table("chat.completion", **_HEADED, **_choices("message")),
    "/v1/responses": _table("response", id=_TEXT, status=_TEXT, output={"type": "array"}),
    "/inference/v1/generate": _table(request_id=_TEXT, model=_TEXT, **_choices("token_ids")),
    "/tokenize": _table(count=_COUNT, max_model_len=_COUNT, tokens=_IDS),
    "/detokenize": _table(prompt=_TEXT),
    "/v1/models": _table("list", data={"type": "array", "items": _MODEL}),
    "/v1/models/{model}": _MODEL,
    "/live": _STATE,
    "/ready": _STATE,
    "/health": _STATE,
    "/v1/adapt": {"type": "object"},
    "/load": _table(
        server_load=_NUMBER, num_requests_running=_NUMBER, num_requests_waiting=_NUMBER, kv_cache_usage_perc=_NUMBER
    ),
}
_STREAMED = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/inference/v1/generate")
_UNLESS_OFF = ("/v1/adapt",)  # 404 where the operator did not turn it on
_OPEN = ("/", "/live", "/ready", "/health", "/metrics")
_OTHERS: Mapping[str, tuple[str, ...]] = {  # kinds of what is no JSON
    "/metrics": ("text/plain", "application/openmetrics-text"),
    "/": ("text/html",),
    "/kv_events": ("application/jsonl",),
}


def describe(app: FastAPI, *, has_keys: bool) -> None:
    """Have the application tell the truth. To be called when all routes are there."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            told = made()
            for path, operations in told["paths"].items():
                for method, operation in operations.items():
                    asks = bool(operation.get("parameters"))
                    operation["responses"] = _responses(path, has_body=method == "post", asks=asks)
                    if has_keys and path not in _OPEN:
                        operation["security"] = [{"key": []}]
            schemas = told["components"]["schemas"]
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            schemas["Error"] = _ERROR
            if has_keys:
                told["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def _responses(path: str, *, has_body: bool, asks: bool) -> dict[str, Any]:
    """`asks`: something stands in the path, or behind it."""
    kinds: dict[str, Any] = {kind: {"schema": _TEXT} for kind in _OTHERS.get(path, ())}
    if path in _REPLIES:
        kinds["application/json"] = {"schema": _REPLIES[path]}
    if path in _STREAMED:
        kinds["text/event-stream"] = {"schema": {}}  # events, whose data is JSON
    told: dict[str, Any] = {"200": {"description": "What was asked for", "content": kinds}}
    if path == "/":
        told["304"] = {"description": "The browser has it already"}
    if path in ("/ready", "/health"):
        told["503"] = {"description": "Not now", "content": {"application/json": {"schema": _STATE}}}
    for status, meaning in _ERRORS.items():
        if (
            has_body
            or (status in (401, 429) and path not in _OPEN)
            or (status in (400, 404) and (asks or (status == 404 and path in _UNLESS_OFF)))
        ):
            content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
            told[str(status)] = {"description": meaning, "content": content}
    return told
