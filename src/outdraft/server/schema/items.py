"""The items of a response's `input`, and the conversation that they are.

    message, function_call, function_call_output, reasoning   ->   messages of a chat

What a model has written in one turn (a thought, a text, calls) is one message of the assistant. Ids and states that an
item brings from an earlier answer are read and mean nothing: nothing is stored here.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from outdraft.server.errors import wrong_field
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
    raise wrong_field(
        "input: the encrypted_content of a reasoning item comes from another server: leave the item out, or send its "
        "content"
    )


def messages_of(items: Iterable[Any]) -> list[Message]:
    """As a chat has them."""
    messages = list[Message]()
    turn = dict[str, Any]()  # of the assistant's message, which may go on: thought, text and calls, in this order

    def end_turn() -> None:
        if turn:
            messages.append(Message(role="assistant", **{"content": "", **turn}))
            turn.clear()

    for item in items:
        by_model = isinstance(item, CallItem | ReasoningItem) or getattr(item, "role", "") == "assistant"
        if not by_model or (not isinstance(item, CallItem) and turn.keys() & {"content", "tool_calls"}):
            end_turn()
        match item:
            case ReasoningItem():
                turn["reasoning_content"] = ((turn.get("reasoning_content") or "") + item.text()) or None
            case MessageItem(role="assistant"):
                turn["content"] = _text(item.content)
            case CallItem():
                called = Called(name=item.name, arguments=item.arguments)
                turn.setdefault("tool_calls", []).append(ToolCall(id=item.call_id, function=called))
            case MessageItem():
                messages.append(Message(role=item.role, content=_text(item.content)))
            case OutputItem():
                messages.append(Message(role="tool", tool_call_id=item.call_id, content=_text(item.output)))
    end_turn()
    return messages


def _text(content: str | list[Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
