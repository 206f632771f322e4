"""What OpenAI's client dumps of a reply can be sent back as it is; a field that says more is refused by name."""

from typing import Any

import pytest
from openai.types import chat
from openai.types import responses as items
from openai.types.chat import chat_completion_message_function_tool_call as calls
from openai.types.responses import response_reasoning_item as reasoning
from pydantic import ValidationError

from outdraft.server.schema.base import refuse
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.schema.responses import ResponsesRequest

USER = {"role": "user", "content": "Hello"}
CALL = chat.ChatCompletionMessageFunctionToolCall(
    id="c", type="function", function=calls.Function(name="f", arguments='{"a": 1}')
)
PARSED = chat.ParsedChatCompletionMessage[Any](
    role="assistant",
    content='{"a": 1}',
    parsed={"a": 1},
    tool_calls=[
        chat.ParsedFunctionToolCall(
            id="c",
            type="function",
            function=chat.ParsedFunction(name="f", arguments='{"a": 1}', parsed_arguments={"a": 1}),
        )
    ],
)
MESSAGES: dict[str, dict[str, Any]] = {
    "a text": chat.ChatCompletionMessage(role="assistant", content="hi").model_dump(),
    "a call": chat.ChatCompletionMessage(role="assistant", tool_calls=[CALL]).model_dump(),
    "read by the client": PARSED.model_dump(),
    "of OpenAI's API": {"role": "assistant", "content": "hi", "refusal": None, "annotations": [], "audio": None},
    "of a stream": {"role": "assistant", "tool_calls": [{"index": 0, **CALL.model_dump()}], "function_call": None},
    "empty": {"role": "assistant", "content": "hi", "tool_calls": [], "refusal": "", "function_call": {}},
    "a result in parts": {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "4"}]},
    "a developer": {"role": "developer", "name": "Ann", "content": [{"type": "text", "text": "Be kind."}]},
}
ITEMS: dict[str, dict[str, Any]] = {
    "a message": items.ResponseOutputMessage(
        id="m",
        type="message",
        role="assistant",
        status="completed",
        content=[items.ResponseOutputText(type="output_text", text="hi", annotations=[])],
    ).model_dump(),
    "a call": items.ResponseFunctionToolCall(
        type="function_call", call_id="c", name="f", arguments="{}", id="i", status="completed"
    ).model_dump(),
    "a call by its aliases": items.ResponseFunctionToolCall(
        type="function_call", call_id="c", name="f", arguments="{}"
    ).model_dump(by_alias=True),
    "a call that was stored": items.ResponseFunctionToolCallItem(
        type="function_call", call_id="c", name="f", arguments="{}", id="i", status="completed"
    ).model_dump(),
    "a result": items.ResponseFunctionToolCallOutputItem(
        type="function_call_output", call_id="c", output="4", id="i", status="completed"
    ).model_dump(),
    "a thought": items.ResponseReasoningItem(
        type="reasoning", id="r", summary=[], content=[reasoning.Content(type="reasoning_text", text="hm")]
    ).model_dump(),
    "a thought without words": items.ResponseReasoningItem(type="reasoning", id="r", summary=[]).model_dump(),
    "a question": items.ResponseInputMessageItem(
        id="i", type="message", role="user", content=[items.ResponseInputText(type="input_text", text="hi")]
    ).model_dump(),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_taken_as_they_were_dumped(name: str) -> None:
    read = ChatRequest.model_validate({"messages": [USER, MESSAGES[name], USER]}).messages[1]
    told = read.told()
    assert set(told) <= {"role", "content", "name", "tool_calls", "tool_call_id"}
    assert [set(one) for one in told.get("tool_calls", [])] == [{"id", "type", "function"}] * len(read.tool_calls or [])
    assert all(set(one["function"]) == {"name", "arguments"} for one in told.get("tool_calls", []))


@pytest.mark.parametrize("name", ITEMS)
def test_items_are_taken_as_they_were_dumped(name: str) -> None:
    assert ResponsesRequest.model_validate({"input": [USER, ITEMS[name], USER]}).chat().messages


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("annotations", [{"type": "url_citation"}], "the model is not shown what a text quotes"),
        ("audio", {"id": "a"}, "the model reads texts alone"),
        ("function_call", {"name": "f", "arguments": "{}"}, "send tool_calls"),
        ("refusal", "no", "send the refusal as content"),
        ("reasoning", "hm", "reasoning_content"),
        ("thinking", None, "there is no field 'thinking'"),
    ],
)
def test_what_carries_something_is_refused_by_name(field: str, value: Any, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate({"messages": [USER, {"role": "assistant", "content": "hi", field: value}]})
    errors = [{**one, "loc": ("body", *one["loc"])} for one in caught.value.errors()]
    refused = refuse(errors)
    assert refused.param == f"messages.1.{field}" and says in refused.message


@pytest.mark.parametrize("field", ["caller", "created_by", "namespace", "async_"])
def test_items_that_carry_more_are_refused_by_name(field: str) -> None:
    with pytest.raises(ValidationError, match="there is no such field"):
        ResponsesRequest.model_validate({"input": [{**ITEMS["a call"], field: "x"}]})
