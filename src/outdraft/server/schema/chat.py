"""`POST /v1/chat/completions`: a conversation, and the answer to it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from outdraft.options.limits import MOST_PARTS
from outdraft.options.params import SamplingParams
from outdraft.server.errors import wrong_field
from outdraft.server.schema.base import NO_BREAKPOINT, JsonTable, Name, No, otherwise
from outdraft.server.schema.conversation_size import CallId, Counted, FewTools, Template, Variables
from outdraft.server.schema.sampling import SamplingFields

CHOOSE = "name a function, or send none, auto or required"


class TextPart(JsonTable):
    """A piece of a message."""

    CURES: ClassVar[Mapping[str, str]] = {"prompt_cache_breakpoint": NO_BREAKPOINT}
    TYPE_CURE: ClassVar[str] = "no model here reads anything else, so leave it out"

    type: Literal["text"]
    text: str


class OtherPart(BaseModel):
    """A piece that is not text, with whatever fields its type has; `conversation.py` knows which types are read."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: Name


def _kind(part: Any) -> str:
    found = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    return "Other" if isinstance(found, str) and found != "text" else "Text"


ContentPart = Annotated[Annotated[TextPart, Tag("Text")] | Annotated[OtherPart, Tag("Other")], Discriminator(_kind)]


class Called(JsonTable):
    """A function that an earlier answer called, with its arguments as JSON in a text."""

    name: Name
    arguments: str
    parsed_arguments: Any = None  # OpenAI's client has read the arguments; they are not taken from here


class ToolCall(JsonTable):
    """A call in an earlier answer."""

    id: CallId
    index: int | None = None  # in a stream; the list has the order
    type: Literal["function"] = "function"
    function: Called

    def told(self, spell: Callable[[str], str]) -> dict[str, Any]:
        """Without what clients add."""
        function = self.function.model_dump(include={"name", "arguments"})
        return {"id": spell(self.id), "type": self.type, "function": function}


class Message(JsonTable):
    """One message of the conversation."""

    CURES: ClassVar[Mapping[str, str]] = {
        "annotations": "the model is not shown what a text quotes: leave it out, or write it into content",
        "audio": "the model reads texts alone: leave it out",
        "function_call": "send tool_calls",
        "refusal": "the model is shown content alone: send the refusal as content",
        "reasoning": "here it is called reasoning_content",
    }

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: Name | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: CallId | None = None
    reasoning_content: str | None = None
    parsed: Any = None  # OpenAI's client has read the content; it is not taken from here

    def told(self, call_id: Callable[[str], str] | None = None) -> dict[str, Any]:
        """Nothing that was not sent. `call_id`: the id of a call as the template wants it."""
        spell = call_id or str
        sent = self.model_dump(exclude_none=True, exclude={"parsed"})
        if self.tool_calls:
            sent["tool_calls"] = [one.told(spell) for one in self.tool_calls]
        if self.tool_call_id is not None:
            sent["tool_call_id"] = spell(self.tool_call_id)
        return sent


class Function(JsonTable):
    """What a tool is called, what it does, and the schema of its arguments."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(JsonTable):
    """A function that the model may call."""

    TYPE_CURE: ClassVar[str] = "send functions, which you call yourself"

    type: Literal["function"]
    function: Function

    def told(self) -> dict[str, Any]:
        """As chat templates show it to the model; whether calls are checked is nothing for it."""
        return self.model_dump(exclude_none=True, exclude={"function": {"strict"}})


class NamedFunction(JsonTable):
    """A function by its name."""

    name: Name


class ToolChoice(JsonTable):
    """The function that must be called."""

    TYPE_CURE: ClassVar[str] = CHOOSE

    type: Literal["function"]
    function: NamedFunction


class Prediction(JsonTable):
    """What the answer will probably be: a text that drafters may copy from."""

    type: Literal["content"]
    content: str | Annotated[list[TextPart], Field(max_length=MOST_PARTS)]

    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(SamplingFields):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1), Counted]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], FewTools] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    prediction: Prediction | None = None
    reasoning_effort: Name | None = None
    chat_template: Template | None = None
    chat_template_kwargs: Variables | None = None
    special_tokens_in_messages: bool | None = None  # names of control tokens in messages are these tokens
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    store: Annotated[No | None, otherwise("nothing is stored here: send false, or leave it out")] = None

    def params(self, stop: tuple[str, ...], **more: Any) -> SamplingParams:
        """`stop`: what ends an answer by the chat template."""
        asked = [self.stop] if isinstance(self.stop, str) else self.stop or []
        limit = min(filter(None, (self.max_tokens, self.max_completion_tokens)), default=None)
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        if self.top_logprobs is not None and not self.logprobs:
            raise wrong_field("top_logprobs needs logprobs: true")
        return self.sampling(max_tokens=limit, logprobs=logprobs, **{"stop": (*asked, *stop), **more})

    def beside(self) -> Mapping[str, Any]:
        """The prediction is a text that the answer may copy from."""
        told = super().beside()
        if self.prediction is None:
            return told
        return {**told, "references": [*(told["references"] or ()), self.prediction.text()]}
