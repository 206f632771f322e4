"""The sampling settings of every endpoint, under the names that users of OpenAI, vLLM and llama.cpp send.

Ranges that depend on one field alone stand in the schema; what depends on several, `SamplingParams` checks.
Data out: `SamplingParams`, and the settings of the request beside them.
"""

from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field

from outdraft.core.params import SamplingParams
from outdraft.core.structured import StructuredOutputsParams
from outdraft.server.errors import ApiError
from outdraft.server.schema.base import Body, Table
from outdraft.server.schema.speculative import SpeculativeField, words

_Penalty = Annotated[float, Field(ge=-2, le=2)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Id = Annotated[int, Field(ge=0)]
_SETTINGS = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "n", "min_tokens", "stop", "stop_token_ids",
    "ignore_eos", "banned_token_ids", "allowed_token_ids", "bad_words", "forced_prefix", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "guidance_scale", "prompt_logprobs",
)  # fmt: skip


class StructuredOutputs(Table):
    """The form of the answer: exactly one of the first five (docs/structured_output.md)."""

    json_: str | dict[str, Any] | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None


class JsonSchema(Table):
    """A schema with a name, as OpenAI's clients send it."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Table):
    """text, json_object, or json_schema with its schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(Table):
    """What a stream tells beside the text."""

    include_usage: bool = False  # one more chunk at the end, with the usage
    continuous_usage_stats: bool = False  # the usage so far in every chunk


StreamInterval = Annotated[int, Field(ge=0)] | None  # tokens of a chunk; 0: what each pass has written


class SamplingFields(Body):
    """How the next token is chosen, and what belongs to a request beside that."""

    model: str | None = None
    temperature: Annotated[float, Field(ge=0)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Field(ge=-1)] | None = 0
    min_p: _Share | None = 0.0
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    seed: int | None = None
    n: Annotated[int, Field(ge=1)] | None = 1
    min_tokens: Annotated[int, Field(ge=0)] | None = 0
    stop: str | list[str] | None = None
    stop_token_ids: list[_Id] | None = None
    ignore_eos: bool = False
    logit_bias: dict[str, float] | None = None
    banned_token_ids: list[_Id] | None = None
    allowed_token_ids: list[_Id] | None = None
    bad_words: list[str] | None = None
    forced_prefix: str | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = 1.0
    presence_penalty: _Penalty | None = 0.0
    frequency_penalty: _Penalty | None = 0.0
    guidance_scale: Annotated[float, Field(ge=0)] | None = 1.0
    negative_prompt: str | list[_Id] | None = None
    structured_outputs: StructuredOutputs | None = None
    response_format: ResponseFormat | None = None
    prompt_logprobs: Annotated[int, Field(ge=0)] | None = None
    references: list[str] | None = None  # texts that the answer may copy from, for drafters that look up
    speculative: SpeculativeField = None
    priority: int = 0
    timeout: Annotated[float, Field(gt=0)] | None = None  # seconds
    cache_salt: str | None = None
    resume_token_ids: list[list[_Id]] | None = None  # what each text had written when its stream was cut off
    request_id: str | None = None
    return_token_ids: bool = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stream_interval: StreamInterval = None

    def sampling(self, **more: Any) -> SamplingParams:
        """The settings. `more`: those whose names differ among endpoints. Raises what `SamplingParams` raises."""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        return SamplingParams(**{**settings, "logit_bias": self._biases(), "structured_outputs": self.form(), **more})

    def form(self) -> StructuredOutputsParams | None:
        """The form that is asked for, in either spelling."""
        asked = self.response_format
        if self.structured_outputs is not None:
            if asked is not None and asked.type != "text":
                raise ApiError(400, "response_format and structured_outputs both say what may be written: send one",
                               param="response_format")  # fmt: skip
            given = {one: getattr(self.structured_outputs, one) for one in StructuredOutputs.model_fields}
            choice = given.pop("choice")
            return StructuredOutputsParams(json=given.pop("json_"), choice=choice and tuple(choice), **given)
        if asked is None or asked.type == "text":
            return None
        if asked.type == "json_object":
            return StructuredOutputsParams(json_object=True)
        if asked.json_schema is None:
            raise ApiError(400, "response_format of type json_schema needs json_schema: {schema: {...}}",
                           param="response_format.json_schema")  # fmt: skip
        return StructuredOutputsParams(json=asked.json_schema.schema_)

    def beside(self) -> Mapping[str, Any]:
        """What `LLM.open` is told of the request beside prompts and sampling settings."""
        return {
            "references": self.references, "negative_prompt": self.negative_prompt, "priority": self.priority,
            "timeout": self.timeout, "cache_salt": self.cache_salt, "speculative": words(self.speculative),
            "resume_token_ids": self.resume_token_ids or (),
        }  # fmt: skip

    def _biases(self) -> dict[int, float] | None:
        """The ids are JSON's keys, so they are text; -100, which OpenAI's users send for a ban, is one."""
        try:
            read = {int(token): bias for token, bias in (self.logit_bias or {}).items()}
        except ValueError as error:
            raise ApiError(
                400, f"logit_bias={self.logit_bias!r:.80}: its keys are token ids", param="logit_bias"
            ) from error
        return {token: -inf if bias <= -100 else bias for token, bias in read.items()} or None
