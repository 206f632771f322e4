"""The items of a response's `input`, and the conversation that they are.

    message, function_call, function_call_output, reasoning   ->   messages of a chat

What a model has written in one turn (a thought, a text, calls) is one message of the assistant. Ids and states that an
item brings from an earlier answer are read and mean nothing: nothing is stored here.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from outdraft.server.errors import ApiError
from outdraft.server.schema.base import NO_BREAKPOINT, JsonTable, Name
from outdraft.server.schema.chat import Called, Message, ToolCall

_MARK = b"outdraft thought\n"
_STATES = Literal["in_progress", "completed", "incomplete"]


class Part(JsonTable):
    """A piece of a message's text."""

    CURES: ClassVar[Mapping[str, str]] = {"prompt_cache_breakpoint": NO_BREAKPOINT}
    TYPE_CURE: ClassVar[str] = "send texts alone"

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: list[dict[str, Any]] | None = None
    logprobs: list[dict[str, Any]] | None = None


class _Item(JsonTable):
    CURES: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("caller", "created_by"), "the model alone calls: leave it out"),
        **dict.fromkeys(("async", "async_"), "the client calls when it likes: leave it out"),
        "namespace": "functions have plain names: leave it out",
        "name": "the call_id says which call it is: leave it out",
    }

    id: Name | None = None
    status: _STATES | None = None


class MessageItem(_Item):
    """What a role says."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]
    phase: Literal["commentary", "final_answer"] | None = None


class CallItem(_Item):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: Name
    name: Name
    arguments: str


class OutputItem(_Item):
    """What came of a call."""

    type: Literal["function_call_output"]
    call_id: Name
    output: str | list[Part]


class Thought(JsonTable):
    """A piece of a thought."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(_Item):
    """What the model thought: the text itself, the text as `sealed` makes it, or its summary."""

    type: Literal["reasoning"]
    content: list[Thought] | None = None
    summary: list[Thought] = Field(default_factory=list)
    encrypted_content: str | None = None

    def text(self) -> str:
        """Raises `ApiError` for what another server has sealed."""
        if self.content:
            return "".join(part.text for part in self.content)
        if self.encrypted_content is not None:
            return opened(self.encrypted_content)
        return "".join(part.text for part in self.summary)


def _kind(item: Any) -> str | None:
    found = item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", None)
    return _KINDS.get(found) if isinstance(found, str) else None


_KINDS = {"message": "Message", "function_call": "Call", "function_call_output": "Output", "reasoning": "Reasoning"}
_UNKNOWN = f"an item is a {', '.join(_KINDS)}: this server stores nothing and has no tools of its own"
Item = Annotated[
    Annotated[MessageItem, Tag("Message")]
    | Annotated[CallItem, Tag("Call")]
    | Annotated[OutputItem, Tag("Output")]
    | Annotated[ReasoningItem, Tag("Reasoning")],
    Discriminator(_kind, custom_error_type="unknown_kind", custom_error_message=_UNKNOWN),
]


def sealed(text: str) -> str:
    """A thought in a form that clients keep and send back without showing it. It is not secret."""
    return b64encode(_MARK + text.encode("utf-8", "surrogatepass")).decode()


def opened(given: str) -> str:
    """The thought. Raises `ApiError` for what `sealed` has not made."""
    try:
        data = b64decode(given, validate=True)
        if data.startswith(_MARK):
            return data[len(_MARK) :].decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        pass
    raise ApiError(
        400,
        "input: the encrypted_content of a reasoning item comes from another server: leave the item "
        "out, or send its content",
        param="input",
    )


def messages_of(items: Iterable[Any]) -> list[Message]:
    """As a chat has them."""
    return [one if isinstance(one, Message) else one.message() for one in _turns(items)]


def _turns(items: Iterable[Any]) -> "Iterator[Message | _Turn]":
    turn: _Turn | None = None
    for item in items:
        if turn is not None and not turn.takes(item):
            yield turn
            turn = None
        match item:
            case OutputItem():
                yield Message(role="tool", tool_call_id=item.call_id, content=_text(item.output))
            case MessageItem() if item.role != "assistant":
                yield Message(role=item.role, content=_text(item.content))
            case _:
                turn = turn or _Turn()
                turn.add(item)
    if turn is not None:
        yield turn


class _Turn:
    """What the model wrote between two messages of others."""

    def __init__(self) -> None:
        self._reasoning = ""
        self._content: str | None = None
        self._calls: list[ToolCall] = []

    def takes(self, item: Any) -> bool:
        """Whether the item belongs to it: thought, text and calls come in this order."""
        match item:
            case CallItem():
                return True
            case MessageItem(role="assistant"):
                return self._content is None and not self._calls
            case ReasoningItem():
                return self._content is None and not self._calls
        return False

    def add(self, item: Any) -> None:
        match item:
            case CallItem():
                called = Called(name=item.name, arguments=item.arguments)
                self._calls.append(ToolCall(id=item.call_id, function=called))
            case MessageItem():
                self._content = _text(item.content)
            case ReasoningItem():
                self._reasoning += item.text()

    def message(self) -> Message:
        return Message(
            role="assistant",
            content=self._content or "",
            tool_calls=self._calls or None,
            reasoning_content=self._reasoning or None,
        )


def _text(content: str | list[Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
