"""`Body`: a request's body. Every field is used or refused by name; nothing is dropped in silence.

`ACCEPTED` are the fields of OpenAI's API that mean nothing to one model on one machine and may be sent all the same;
`ELSEWHERE` are fields that other servers know, with what to send in their place.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from typing import Any

from pydantic import BaseModel, ConfigDict

from outdraft.core.foreign_params import CALLED, REFUSED
from outdraft.core.near_miss import near_miss
from outdraft.core.shown import shown
from outdraft.server.errors import ApiError

ACCEPTED = ("user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key")
ELSEWHERE = {
    "suffix": "text is written from left to right here: leave it out",
    "functions": "send tools",
    "function_call": "send tool_choice",
    "modalities": "answers are text: leave it out",
    "audio": "answers are text: leave it out",
    "web_search_options": "this server reaches no other machine: leave it out",
    "echo_prompt": "send echo",
    "draft_model": "what drafts is chosen in speculative, among the methods of /v1/models",
    "drafter": "send speculative: {method: ...}",
    "num_speculative_tokens": "send speculative: {num_speculative_tokens: ...}",
    "guided_json": "send structured_outputs: {json: schema}, or response_format",
    "guided_regex": "send structured_outputs: {regex: pattern}",
    "guided_choice": "send structured_outputs: {choice: [...]}",
    "guided_grammar": "send structured_outputs: {grammar: text}",
    "guided_decoding_backend": "there is one library, llguidance: leave it out",
    "guided_whitespace_pattern": "send structured_outputs: {json: schema, whitespace_pattern: pattern}",
    "json_schema": "send response_format: {type: json_schema, json_schema: {schema: ...}}",
    "grammar": "send structured_outputs: {grammar: text}",
}


_TYPES = ("str", "int", "float", "bool", "dict")  # as pydantic names them


class Table(BaseModel):
    """A JSON object whose fields are all known, and of exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Body(Table):
    """A request's body."""

    user: str | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


def refuse(kind: type[BaseModel] | None, found: Seq[Mapping[str, Any]]) -> ApiError:
    """One sentence of what is wrong with a body of this kind: the first thing that a reader should mend.

    `found`: pydantic's errors; places begin with "body", as FastAPI has them.
    """
    for one in found:
        if one["type"] == "extra_forbidden":
            return _unknown(kind, tuple(one["loc"]))
    return _wrong(found)


def _unknown(kind: type[BaseModel] | None, place: tuple[Any, ...]) -> ApiError:
    name, known = str(place[-1]), list(kind.model_fields) if kind is not None and len(place) == 2 else []
    cures = {**ELSEWHERE, **REFUSED}
    if name in cures:
        cure = f": {cures[name]}"
    elif (called := CALLED.get(name)) is not None and called in known:
        cure = f": here it is called {called}"
    else:
        cure = near_miss(name, known)
    where = f" in {path}" if (path := _path(place[:-1])) else ""
    return ApiError(400, f"there is no field {shown(name)}{where}{cure}", param=_path(place), code="unknown_field")


def _wrong(found: Seq[Mapping[str, Any]]) -> ApiError:
    """Of a field that may be one of several types there is an error for each: the deepest one knows best."""
    one = max(found, key=lambda error: len(error["loc"]))
    if one["type"] == "json_invalid":
        return ApiError(
            400, f"the body is no JSON: {one.get('ctx', {}).get('error', 'it ends early')}", code="invalid_json"
        )
    path = _path(one["loc"])
    if one["type"] == "missing":
        return ApiError(400, f"{path or 'the body'} is missing", param=path or None, code="missing_field")
    told = one["msg"][0].lower() + one["msg"][1:]
    return ApiError(
        400, f"{path or 'the body'}={shown(one['input'])}: {told}", param=path or None, code="invalid_value"
    )


def _path(place: Iterable[Any]) -> str:
    """messages.0.content: without "body", and without pydantic's names for the branches of a union."""
    parts = [str(part) for part in place]
    return ".".join(part for part in parts[1:] if not (part in _TYPES or "[" in part or part[:1].isupper()))
