"""The sampling settings of every endpoint, under the names that users of OpenAI, vLLM and llama.cpp send.

Ranges that depend on one field alone stand in the schema; what depends on several, `SamplingParams` checks.
Data out: `SamplingParams`, and the settings of the request beside them.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from math import inf
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from outdraft.options import limits
from outdraft.options.errors import ContextLengthError, RequestError
from outdraft.options.params import SamplingParams
from outdraft.options.ranges import MOST_NODES
from outdraft.options.shown import shown
from outdraft.options.structured import StructuredOutputsParams
from outdraft.server.errors import TOO_LONG, clean, wrong_field
from outdraft.server.schema.base import Body, JsonTable, Name, No, otherwise, too_long
from outdraft.server.schema.forms import ResponseFormat, StructuredOutputs

_Penalty = Annotated[float, Field(ge=-2, le=2)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Id = Annotated[int, Field(ge=0)]
_Ids = Annotated[list[_Id], Field(max_length=limits.MOST_IDS)]
_Stop = Annotated[str, Field(max_length=limits.LONGEST_STOP)]  # it is looked for behind every token
_Word = Annotated[str, Field(max_length=limits.LONGEST_BAD_WORD)]  # likewise


def _numbers(given: Any) -> Any:
    """The first wrong value of a table says enough, and an error for each takes memory."""
    if isinstance(given, dict) and len(given) > limits.MOST_BIASES:
        raise too_long(f"it has {len(given)} tokens", limits.MOST_BIASES)
    wrong = [key for key, one in given.items() if type(one) not in (int, float)] if isinstance(given, dict) else []
    if wrong:
        told = {"key": shown(wrong[0]), "value": shown(given[wrong[0]])}
        raise PydanticCustomError("no_number", "{key} has {value}, which is no number", told)
    return given


_Biases = Annotated[dict[str, float], Field(max_length=limits.MOST_BIASES), BeforeValidator(_numbers)]
_Reference = Annotated[str, Field(max_length=limits.ALL_REFERENCES)]
_TOKEN_ID = re.compile(r"0|-?[1-9][0-9]{0,11}")
_OF_FORM = re.compile(r"\w+ of structured_outputs (.+)")
_GRAMMAR = re.compile(r"\bat \d+\(\d+\): | \d+ \| .*")  # one that the server made means nothing to the reader


class SpeculativeFields(JsonTable):
    """How one request is drafted. What is left out is the server's own choice; the text is the same either way."""

    method: Name | None = None  # one of the methods that this server holds
    num_speculative_tokens: Annotated[int, Field(ge=0, le=MOST_NODES)] | None = None  # the most of a round; 0: plain
    verifier: Name | None = None  # the acceptance rule
    policy: Name | None = None  # fixed: always as many as num_speculative_tokens says; else the server's own


class ObfuscationOptions(JsonTable):
    """What a stream gives beside the text."""

    include_obfuscation: Annotated[No | None, otherwise("events have no padding here: send false, or leave it out")] = (
        None
    )


class StreamOptions(ObfuscationOptions):
    """The same, and more."""

    include_usage: bool | None = False  # one more chunk at the end, with the usage
    continuous_usage_stats: bool | None = False  # the usage so far in every chunk


class AskFields(Body):
    """What belongs to a request beside the choice of its tokens: fields of all endpoints that write."""

    model: Name | None = None
    # what drafters copy from
    references: Annotated[list[_Reference], Field(max_length=limits.MOST_REFERENCES)] | None = None
    speculative: SpeculativeFields | No | None = None  # False: plain decoding
    priority: int | None = 0
    timeout: Annotated[float, Field(gt=0)] | None = None  # seconds
    cache_salt: Name | None = None
    adapt: bool | None = None  # whether the draft may learn from it, where the server has one that does
    resume_token_ids: list[list[_Id]] | None = None  # what each text had written when its stream was cut off
    request_id: Annotated[str, Field(pattern=limits.PLAIN_ID)] | None = None  # it stands in every chunk
    stream: bool | None = False
    stream_interval: Annotated[int, Field(ge=0)] | None = None  # tokens of a chunk; 0: what each pass has written


class ChoiceFields(AskFields):
    """How the next token is chosen."""

    temperature: Annotated[float, Field(ge=0)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Field(ge=-1)] | None = 0
    min_p: _Share | None = 0.0
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    seed: int | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = 0
    stop: _Stop | Annotated[list[_Stop], Field(max_length=limits.MOST_STOPS)] | None = None
    stop_token_ids: _Ids | None = None
    ignore_eos: bool | None = False
    logit_bias: _Biases | None = None
    banned_token_ids: _Ids | None = None
    allowed_token_ids: _Ids | None = None
    bad_words: Annotated[list[_Word], Field(max_length=limits.MOST_BAD_WORDS)] | None = None
    forced_prefix: Annotated[str, Field(max_length=limits.LONGEST_PREFIX)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = 1.0
    presence_penalty: _Penalty | None = 0.0
    frequency_penalty: _Penalty | None = 0.0
    guidance_scale: Annotated[float, Field(ge=0)] | None = 1.0
    negative_prompt: str | list[_Id] | None = None
    structured_outputs: StructuredOutputs | None = None

    def beside(self) -> Mapping[str, Any]:
        """What `LLM.open` is given of the request beside prompts and sampling settings."""
        asked = self.speculative
        drafted = asked.model_dump(exclude_none=True) if isinstance(asked, SpeculativeFields) else asked
        return {
            "references": self.references,
            "negative_prompt": self.negative_prompt,
            "priority": self.priority or 0,
            "timeout": self.timeout,
            "cache_salt": self.cache_salt,
            "adapt": self.adapt,
            "speculative": drafted,
            "resume_token_ids": self.resume_token_ids or (),
        }

    def in_force(self, name: str) -> Any:
        """What the field says, or its default: null says nothing."""
        value = getattr(self, name)
        return type(self).model_fields[name].default if value is None else value

    def biases(self) -> dict[int, float] | None:
        """The ids are JSON's keys, so they are text; -100, which OpenAI's users send for a ban, is one."""
        given = self.logit_bias or {}
        if (wrong := next((one for one in given if not _TOKEN_ID.fullmatch(one)), None)) is not None:
            raise wrong_field(f"logit_bias has the key {shown(wrong)}: its keys are token ids, in digits alone")
        return {int(token): -inf if bias <= -100 else bias for token, bias in given.items()} or None


class SamplingFields(ChoiceFields):
    """What completions, chats and token ids have in common beside that: several texts, and more about each."""

    n: Annotated[int, Field(ge=1)] | None = 1
    response_format: ResponseFormat | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    return_token_ids: bool | None = False
    return_draft_tree: bool | None = False  # of the last round in a reply or a chunk, and what became of each node
    stream_options: StreamOptions | None = None

    def beside(self) -> Mapping[str, Any]:
        return {**super().beside(), "return_draft_tree": bool(self.return_draft_tree)}

    def sampling(self, **more: Any) -> SamplingParams:
        """The settings. `more`: those whose names differ among endpoints. Raises what `SamplingParams` raises."""
        settings = {name: self.in_force(name) for name in _SETTINGS}
        return SamplingParams(**{**settings, "logit_bias": self.biases(), "structured_outputs": self.form(), **more})

    def form(self) -> StructuredOutputsParams | None:
        """The form that is asked for, in either spelling. Raises `ApiError` for both at once."""
        form = None if self.response_format is None else self.response_format.params()
        if self.structured_outputs is None:
            return form
        if form is not None:
            raise wrong_field("response_format and structured_outputs both say what may be written: send one")
        return self.structured_outputs.params()

    @property
    def form_field(self) -> str:
        return "response_format" if self.structured_outputs is None else "structured_outputs"

    @property
    def prompt_field(self) -> str:
        return next((name for name in ("messages", "prompt") if name in type(self).model_fields), "token_ids")

    @contextmanager
    def told_by_field(self) -> Iterator[None]:
        """Name the field of this request in an error of the engine, which has one field for all forms and prompts.

        Raises `ApiError` in place of a `RequestError` about a prompt that is too long, or about a form.
        """
        try:
            yield
        except ContextLengthError as error:
            param = "negative_prompt" if "negative prompt" in str(error) else self.prompt_field
            raise wrong_field(clean(error), param, code=TOO_LONG) from error
        except RequestError as error:
            found = _OF_FORM.match(str(error))
            if found is None:
                raise
            why = _GRAMMAR.sub("", found[1])
            if self.structured_outputs is not None:
                kind = self.structured_outputs.params().kind
                said = clean(error) if kind == "grammar" else f"{kind} of structured_outputs {why}"
                raise wrong_field(said, "structured_outputs") from error
            form = self.response_format is not None and self.response_format.type != "text"
            given = {"response_format": form, "tools": getattr(self, "tools", None)}
            named = [name for name, is_given in given.items() if is_given]
            raise wrong_field(f"{' or '.join(named)}: its schema {why}", named[0]) from error


_SETTINGS = SamplingFields.model_fields.keys() & {one.name for one in fields(SamplingParams)}
