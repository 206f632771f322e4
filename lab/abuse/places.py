"""Where each table of a request stands: the smallest request that holds one, and the way to it."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}},
    "required": ["name"],
    "additionalProperties": False,
}
PROMPT = {"prompt": "It was late when", "max_tokens": 2, "temperature": 0}
_USER = {"role": "user", "content": "It was late when"}
_TALK = {"messages": [_USER], "max_tokens": 2, "temperature": 0}
_TOOL = {"type": "function", "function": {"name": "person", "parameters": SCHEMA}}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "person", "arguments": "{}"}}
_CALLED = {
    **_TALK,
    "messages": [
        _USER,
        {"role": "assistant", "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a"},
        _USER,
    ],
}
_INPUT: dict[str, Any] = {"input": "It was late when", "max_output_tokens": 2, "temperature": 0}
_SAID = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "It was late when"}]}
_CALLS = {"type": "function_call", "call_id": "call_1", "name": "person", "arguments": "{}"}
_CAME = {"type": "function_call_output", "call_id": "call_1", "output": "a"}
_THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]}
_ITEMS = {**_INPUT, "input": [_SAID, _THOUGHT, _CALLS, _CAME]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`way`: keys and indices from the body to the table."""

    path: str
    body: Mapping[str, Any]
    way: tuple[str | int, ...] = ()

    def body_with(self, settings: Mapping[str, Any], around: Mapping[str, Any]) -> dict[str, Any]:
        """A body whose table has these settings, beside what is in it; `around` stands in the body itself."""
        made: dict[str, Any] = deepcopy({**self.body, **around})
        table: Any = made
        for step in self.way:
            table = table[step]
        table.update(settings)
        return made


def _place(path: str, body: Mapping[str, Any], *way: str | int, **more: Any) -> Place:
    return Place(path=path, body={**body, **more}, way=way)


PLACES: Mapping[str, Place] = {
    "CompletionRequest": _place(COMPLETIONS, PROMPT),
    "ChatRequest": _place(CHAT, _TALK),
    "ResponsesRequest": _place(RESPONSES, _INPUT),
    "GenerateRequest": _place("/inference/v1/generate", {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 2}}),
    "TokenSampling": _place(
        "/inference/v1/generate", {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 2}}, "sampling_params"
    ),
    "TokenizeRequest": _place("/tokenize", {"prompt": "It was late when"}),
    "DetokenizeRequest": _place("/detokenize", {"tokens": [5, 6, 7]}),
    "Message": _place(CHAT, _TALK, "messages", 0),
    "TextPart": _place(
        CHAT,
        _TALK,
        "messages",
        0,
        "content",
        0,
        messages=[{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    ),
    "OtherPart": _place(
        CHAT, _TALK, "messages", 0, "content", 0, messages=[{"role": "user", "content": [{"type": "picture"}]}]
    ),
    "ToolCall": _place(CHAT, _CALLED, "messages", 1, "tool_calls", 0),
    "Called": _place(CHAT, _CALLED, "messages", 1, "tool_calls", 0, "function"),
    "Tool": _place(CHAT, _TALK, "tools", 0, tools=[_TOOL]),
    "Function": _place(CHAT, _TALK, "tools", 0, "function", tools=[_TOOL]),
    "ToolChoice": _place(
        CHAT, _TALK, "tool_choice", tools=[_TOOL], tool_choice={"type": "function", "function": {"name": "person"}}
    ),
    "NamedFunction": _place(
        CHAT,
        _TALK,
        "tool_choice",
        "function",
        tools=[_TOOL],
        tool_choice={"type": "function", "function": {"name": "person"}},
    ),
    "Prediction": _place(CHAT, _TALK, "prediction", prediction={"type": "content", "content": "a"}),
    "StructuredOutputs": _place(COMPLETIONS, PROMPT, "structured_outputs", structured_outputs={}),
    "ResponseFormat": _place(
        COMPLETIONS,
        PROMPT,
        "response_format",
        response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}},
    ),
    "JsonSchema": _place(
        COMPLETIONS,
        PROMPT,
        "response_format",
        "json_schema",
        response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}},
    ),
    "SpeculativeFields": _place(COMPLETIONS, PROMPT, "speculative", speculative={}),
    "StreamOptions": _place(COMPLETIONS, PROMPT, "stream_options", stream=True, stream_options={}),
    "ObfuscationOptions": _place(RESPONSES, _INPUT, "stream_options", stream=True, stream_options={}),
    "MessageItem": _place(RESPONSES, _ITEMS, "input", 0),
    "Part": _place(RESPONSES, _ITEMS, "input", 0, "content", 0),
    "ReasoningItem": _place(RESPONSES, _ITEMS, "input", 1),
    "Thought": _place(RESPONSES, _ITEMS, "input", 1, "content", 0),
    "CallItem": _place(RESPONSES, _ITEMS, "input", 2),
    "OutputItem": _place(RESPONSES, _ITEMS, "input", 3),
    "TextConfig": _place(RESPONSES, _INPUT, "text", text={"format": {"type": "text"}}),
    "TextFormat": _place(
        RESPONSES, _INPUT, "text", "format", text={"format": {"type": "json_schema", "name": "p", "schema": SCHEMA}}
    ),
    "FunctionTool": _place(
        RESPONSES, _INPUT, "tools", 0, tools=[{"type": "function", "name": "person", "parameters": SCHEMA}]
    ),
    "FunctionChoice": _place(
        RESPONSES,
        _INPUT,
        "tool_choice",
        tool_choice={"type": "function", "name": "person"},
        tools=[{"type": "function", "name": "person", "parameters": SCHEMA}],
    ),
    "Reasoning": _place(RESPONSES, _INPUT, "reasoning", reasoning={}),
}
