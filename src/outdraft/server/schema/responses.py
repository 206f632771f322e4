"""`POST /v1/responses`: the Responses API without a memory, https://platform.openai.com/docs/api-reference/responses

A response is the answer to a chat in other words, and `chat` says it in those of a chat.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from outdraft.options.limits import MOST_PARTS
from outdraft.server.errors import wrong_field
from outdraft.server.schema.base import JsonTable, Metadata, Name, No, otherwise
from outdraft.server.schema.chat import CHOOSE, ChatRequest, Function, Message, NamedFunction, Tool, ToolChoice
from outdraft.server.schema.conversation_size import Counted, FewTools, Variables
from outdraft.server.schema.forms import JsonSchema, ResponseFormat
from outdraft.server.schema.items import Item, messages_of
from outdraft.server.schema.sampling import ChoiceFields, ObfuscationOptions, StreamOptions

LOGPROBS, SEALED = "message.output_text.logprobs", "reasoning.encrypted_content"
_Included = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]
_ALIKE = ("parallel_tool_calls", "chat_template_kwargs", "special_tokens_in_messages", "top_logprobs")
_NO_TOOLS = "there are no tools on this server: send functions, which you call yourself"
_LENGTH = "how long the text becomes is said in instructions: leave it out"
_NO_MEMORY = "nothing is stored here: send the whole conversation in input"


class FunctionTool(JsonTable):
    """A function that the model may call."""

    CURES: ClassVar[Mapping[str, str]] = {
        "defer_loading": "all tools are shown to the model: leave it out",
        "allowed_callers": "the model alone calls: leave it out",
        "output_schema": "what a function returns is not checked: leave it out",
    }
    TYPE_CURE: ClassVar[str] = _NO_TOOLS

    type: Literal["function"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def tool(self) -> Tool:
        told = {name: getattr(self, name) for name in Function.model_fields}
        return Tool(type="function", function=Function(**told))


class FunctionChoice(JsonTable):
    """The function that must be called."""

    TYPE_CURE: ClassVar[str] = CHOOSE

    type: Literal["function"]
    name: Name


class TextFormat(JsonTable):
    """text, json_object, or json_schema with its schema."""

    CURES: ClassVar[Mapping[str, str]] = JsonSchema.CURES
    TYPE_CURE: ClassVar[str] = "send one of these, or structured_outputs"

    type: Literal["text", "json_object", "json_schema"]
    name: Name | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None

    def response_format(self) -> ResponseFormat:
        """As a chat has it. Raises `ApiError` where the type and the schema do not go together."""
        if (self.type == "json_schema") != (self.schema_ is not None):
            needs = "needs" if self.schema_ is None else "takes no"
            raise wrong_field(f"text.format of type {self.type} {needs} schema", "text.format.schema")
        form = None
        if self.schema_ is not None:
            form = JsonSchema.model_validate({"name": self.name, "schema": self.schema_, "strict": self.strict})
        return ResponseFormat(type=self.type, json_schema=form)


class TextConfig(JsonTable):
    """What the text looks like."""

    CURES: ClassVar[Mapping[str, str]] = {"verbosity": _LENGTH}

    format: TextFormat | None = None


class Reasoning(JsonTable):
    """How the model thinks."""

    CURES: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("summary", "generate_summary"), "thoughts are given whole and not summed up: leave it out"
    )

    effort: Name | None = None  # a variable of the model's chat template


class ResponsesRequest(ChoiceFields):
    """One answer to a conversation that is sent whole."""

    CURES: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("previous_response_id", "conversation"), _NO_MEMORY),
        "prompt": "nothing is stored here: send its text in instructions",
        "max_tokens": "here it is called max_output_tokens",
        "max_completion_tokens": "here it is called max_output_tokens",
        "messages": "here it is called input",
        "response_format": "send text: {format: ...}",
        "reasoning_effort": "send reasoning: {effort: ...}",
        "n": "a response is one text: send several requests",
        "logprobs": f'send include: ["{LOGPROBS}"]',
        "max_tool_calls": "it counts tools of the server, which has none: leave it out",
        "context_management": "input is never cut or summed up: leave it out",
        "image": "answers are text: leave it out",
        "access_programs": "every client is served alike: leave it out",
        "background_options": "answers are written at once: leave it out",
        "verbosity": _LENGTH,
    }

    client_metadata: Metadata | None = None  # as metadata; Codex sends it
    input: str | Annotated[list[Item], Field(min_length=1), Counted]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    text: TextConfig | None = None
    tools: Annotated[list[FunctionTool], FewTools] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    include: Annotated[list[_Included], Field(max_length=16)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    chat_template_kwargs: Variables | None = None
    special_tokens_in_messages: bool | None = None
    stream_options: ObfuscationOptions | None = None
    truncation: Annotated[
        Literal["disabled"] | None, otherwise("the input is never cut here: send disabled, or leave it out")
    ] = None
    background: Annotated[No | None, otherwise("answers are written at once here: send false, or leave it out")] = None
    store: Annotated[No | None, otherwise("nothing is stored here: send false, or leave it out")] = None

    def wants(self, more: str) -> bool:
        return more in (self.include or ())

    def chat(self) -> ChatRequest:
        """The same in a chat's words. Raises `ApiError` for what does not go together."""
        if self.top_logprobs is not None and not self.wants(LOGPROBS):
            raise wrong_field(f'top_logprobs needs include: ["{LOGPROBS}"]')
        given = {name: getattr(self, name) for name in ChoiceFields.model_fields if name in self.model_fields_set}
        form = self.text.format if self.text is not None else None
        return ChatRequest(
            **given,
            messages=self._messages(),
            max_completion_tokens=self.max_output_tokens,
            response_format=None if form is None else form.response_format(),
            tools=None if self.tools is None else [tool.tool() for tool in self.tools],
            tool_choice=self._choice(),
            **{name: getattr(self, name) for name in _ALIKE},
            reasoning_effort=None if self.reasoning is None else self.reasoning.effort,
            logprobs=self.wants(LOGPROBS),
            stream_options=None if self.stream_options is None else StreamOptions(),  # for a stream alone, as there
        )

    def _messages(self) -> list[Message]:
        before = [] if self.instructions is None else [Message(role="system", content=self.instructions)]
        if isinstance(self.input, str):
            return [*before, Message(role="user", content=self.input)]
        messages = [*before, *messages_of(self.input)]
        if (count := len(messages)) > MOST_PARTS:
            raise wrong_field(
                f"input: with instructions it has {count} messages: {MOST_PARTS} are the most; send fewer"
            )
        return messages

    def _choice(self) -> Literal["none", "auto", "required"] | ToolChoice | None:
        if isinstance(self.tool_choice, FunctionChoice):
            return ToolChoice(type="function", function=NamedFunction(name=self.tool_choice.name))
        return self.tool_choice
