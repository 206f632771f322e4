"""`Body`: a request's body. Every field is used or refused by name; nothing is dropped in silence.

`ELSEWHERE` are fields that other servers know, with what to send in their place.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from outdraft.options.foreign_params import CALLED, REFUSED
from outdraft.options.limits import LONGEST_NAME, MOST_METADATA
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown
from outdraft.server.errors import ApiError, wrong_field

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
    "documents": "put them into the messages: leave it out",
    "verbosity": "how long the text becomes is said in the messages: leave it out",
    "prompt_cache_retention": "the cache is not kept for a given time: leave it out",
    "prompt_cache_options": "what is cached is the server's to choose; cache_salt keeps requests apart",
    "moderation": "texts are not judged here: leave it out",
    "kv_transfer_params": "the cache stays where it is: leave it out",
    "session_id": "send prompt_cache_key",
    "include_reasoning": "thoughts are always given, in reasoning_content: leave it out",
    "thinking_token_budget": "thoughts are among the tokens of the answer, which have one limit: leave it out",
    "repetition_detection": "a text that repeats itself goes on: send repetition_penalty, or leave it out",
    "truncation_side": "a prompt is never cut here: leave it out",
    "skip_special_tokens": "an answer never has them; return_token_ids gives all tokens",
    "spaces_between_special_tokens": "a text has no special tokens: leave it out",
    "include_stop_str_in_output": "a text ends before what stopped it, which stop_reason names: leave it out",
    "truncate_prompt_tokens": "a prompt is never cut here: shorten it, or leave it out",
    "add_special_tokens": "a text begins with the model's start token; send token ids for another beginning",
    "logprob_token_ids": "log probabilities are of the best tokens: send logprobs, or top_logprobs of a chat",
    "cache_prompt": "what is cached is the operator's to choose; cache_salt keeps requests apart",
    "guided_json_object": "send structured_outputs: {json_object: true}",
    "structural_tag": "write the tags into structured_outputs: {grammar: ...}",
    "guided_json": "send structured_outputs: {json: schema}, or response_format",
    "guided_regex": "send structured_outputs: {regex: pattern}",
    "guided_choice": "send structured_outputs: {choice: [...]}",
    "guided_grammar": "send structured_outputs: {grammar: text}",
    "guided_decoding_backend": "there is one library, llguidance: leave it out",
    "guided_whitespace_pattern": "send structured_outputs: {json: schema, whitespace_pattern: pattern}",
    "json_schema": "send response_format: {type: json_schema, json_schema: {schema: ...}}",
    "grammar": "send structured_outputs: {grammar: text}",
}


NO_BREAKPOINT = "what is cached is the server's to choose: leave it out"
_TYPES = ("str", "constrained-str", "int", "float", "bool", "dict")  # as pydantic names them


def _failing_fast(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_failing_fast(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    fast = {"fail_fast": True} if schema.get("type") == "list" else {}
    return {**{key: _failing_fast(one) for key, one in schema.items()}, **fast}


class JsonTable(BaseModel):
    """A JSON object whose fields are all known, and of exactly their types.

    `CURES`: fields that clients send and that are not here, with what to send in their place. What is null or empty
    says nothing, so such a field may be that. `TYPE_CURE`: what to send in place of a table of another `type`, which
    is then refused by that name, before all else.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)
    CURES: ClassVar[Mapping[str, str]] = {}
    TYPE_CURE: ClassVar[str] = ""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A list is wrong at its first wrong element: an error for each of a million would take all memory."""
        schema: CoreSchema = _failing_fast(handler(source))
        return schema

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if cls.TYPE_CURE:
            kind, taken = given.get("type"), get_args(cls.model_fields["type"].annotation)
            if isinstance(kind, str) and kind not in taken:
                told = {"kind": shown(kind), "known": ", ".join(taken), "cure": cls.TYPE_CURE}
                raise PydanticCustomError(
                    "unknown_kind", "type {kind} is not for this server, which takes {known}: {cure}", told
                )
        if given.keys() <= _names(cls).keys():  # as most are: there may be very many tables
            return given
        known = [*_names(cls)]
        cures = {**ELSEWHERE, **REFUSED, **cls.CURES}
        kept = {
            name: value
            for name, value in given.items()
            if name in known or name not in cures or value not in (None, "", [], {})
        }
        for name in kept:
            if name not in known:
                told = {"name": name, "cure": _cure(name, cures, known)}
                raise PydanticCustomError("unknown_field", "there is no such field{cure}", told)
        return kept


@cache
def _names(table: type[JsonTable]) -> dict[str, None]:
    return dict.fromkeys(field.alias or name for name, field in table.model_fields.items())


def _is_short(given: dict[str, Any]) -> dict[str, Any]:
    try:
        size = len(orjson.dumps(given))
    except orjson.JSONEncodeError:  # it could not be given back either
        raise PydanticCustomError("too_deep", "its lists and tables are nested too deeply") from None
    if size > MOST_METADATA:
        raise too_long(f"as JSON it has {size} bytes", MOST_METADATA)
    return given


def too_long(has: str, most: int, cure: str = "send less") -> PydanticCustomError:
    """The error of a value that is larger than is taken. `has`: how large it is, such as "it has 5 entries"."""
    told = {"has": has, "most": most, "cure": cure}
    return PydanticCustomError("too_long", "{has}, and {most} are taken: {cure}", told)


Name = Annotated[str, Field(max_length=LONGEST_NAME)]  # it names something, and is not read
Metadata = Annotated[dict[str, Any], AfterValidator(_is_short)]


class Body(JsonTable):
    """A request's body. These fields of OpenAI's API mean nothing to one model on one machine, and may all be sent."""

    user: Name | None = None
    metadata: Metadata | None = None
    service_tier: Name | None = None
    safety_identifier: Name | None = None
    prompt_cache_key: Name | None = None


def _no_number(given: Any) -> Any:
    """0 is equal to False in Python, and is another thing in JSON."""
    if type(given) in (int, float):
        raise PydanticCustomError("literal_error", "input should be false")
    return given


No = Annotated[Literal[False], BeforeValidator(_no_number)]  # false, and nothing that is equal to it


def otherwise(cure: str) -> WrapValidator:
    """What is said of every value that the field does not take."""

    def check(given: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(given)
        except ValidationError as error:
            raise PydanticCustomError("refused", "{cure}", {"cure": cure}) from error

    return WrapValidator(check)


def refuse(found: Seq[Mapping[str, Any]]) -> ApiError:
    """One sentence of what is wrong with a body: the first thing that a reader should mend.

    `found`: pydantic's errors; places begin with "body", as FastAPI has them.
    """
    for one in found:
        if one["type"] == "unknown_field":
            name, cure = one["ctx"]["name"], one["ctx"]["cure"]
            path = _path(one["loc"])
            where, param = (f" in {path}", f"{path}.{name:.100}") if path else ("", f"{name:.100}")
            return wrong_field(f"there is no field {shown(name)}{where}{cure}", param, code="unknown_field")

    def knows(error: Mapping[str, Any]) -> tuple[int, list[int], bool]:
        at = [part for part in error["loc"] if isinstance(part, int)]
        return len(error["loc"]), at, not error["type"].endswith(("_type", "literal_error"))

    # Of a field that may be one of several types there is an error for each. The deepest one knows best, of those the
    # one that has read most of a list, and of those one that is not about the type.
    one = max(found, key=knows)
    if one["type"] == "json_invalid":
        return ApiError(
            400, f"the body is no JSON: {one.get('ctx', {}).get('error', 'it ends early')}", code="invalid_json"
        )
    path = _path(one["loc"])
    if one["type"] == "missing":
        return wrong_field(f"{path or 'the body'} is missing", path or None, code="missing_field")
    told = one["msg"][0].lower() + one["msg"][1:]
    return wrong_field(f"{path or 'the body'}={shown(one['input'])}: {told}", path or None, code="invalid_value")


def _cure(name: str, cures: Mapping[str, str], known: Seq[str]) -> str:
    if name in cures:
        return f": {cures[name]}"
    called = CALLED.get(name)
    return f": here it is called {called}" if called in known else near_miss(name, known)


def _path(place: Iterable[Any]) -> str:
    """messages.0.content: without "body", and without pydantic's names for the branches of a union."""
    parts = [str(part) for part in place]
    return ".".join(part for part in parts[1:] if not (part in _TYPES or "[" in part or part[:1].isupper()))
