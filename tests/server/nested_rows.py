"""The rows of `test_every_field.py` for tables within requests: "Table.field", sent to one endpoint that has it."""

from typing import Any

from tests.server.field_rows import (
    _COPY,
    _DRAFTS,
    CALLING,
    CLOCK,
    FORM,
    FUNCTION,
    PLAIN,
    SHOWS,
    USER,
    WEATHER,
    Body,
    Row,
    _drafted,
)

_LONG = {"max_tokens": 60}


def at(endpoint: str, kind: Any, given: Body, without: Body | None = None, says: str = "", **more: Any) -> Row:
    return Row(at=endpoint, kind=kind, given=given, without=without or {}, says=says, **more)


def talk(*messages: Body) -> Body:
    """A conversation that the template shows as it is."""
    return {"prompt": None, "messages": [*messages], "chat_template": SHOWS}


def spoken(role: str, **more: Any) -> Body:
    return talk(USER, {"role": role, "content": "Yes.", **more})


def called(**more: Any) -> Body:
    function = {**CALLING["function"], **more.pop("function", {})}
    return talk(USER, {"role": "assistant", "tool_calls": [{**CALLING, "function": function, **more}]})


def tooled(**more: Any) -> Body:
    return {**talk(USER), "tools": [{"type": "function", "function": {"name": "f", **more}}]}


def form(**more: Any) -> Body:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": FORM, **more}}, **_LONG}


def structured(**more: Any) -> Body:
    return {"structured_outputs": more, **_LONG}


def item(**more: Any) -> Body:
    return {"input": [{"role": "user", "content": "Hello"}, more]}


def wrong_type(endpoint: str, given: Body) -> Row:
    """A table whose type is another one."""
    return at(endpoint, "refused", given, says="other")


_MESSAGE = {"type": "message", "role": "assistant", "content": "Yes."}
_PART = {"type": "output_text", "text": "Yes."}
_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
_OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}
_THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
_SUMMARY = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
_LABELS = {"id": "x_1", "status": "completed"}
_ONE = {"tools": [WEATHER], "tool_choice": "required"}


def choosing(name: str) -> Body:
    choice = {"type": "function", "function": {"name": name}}
    return {"tools": [WEATHER, CLOCK], "tool_choice": choice, **_LONG}


def bound(*, strict: bool) -> Body:
    """The beginning of a call, which the model is free to make, and whose arguments it then writes."""
    tool = {**WEATHER, "function": {**WEATHER["function"], "strict": strict}}
    return {"tools": [tool], "forced_prefix": '<tool_call>\n{"name": "weather", "arguments": {', **_LONG}


def parts(**more: Any) -> Body:
    return item(**{**_MESSAGE, "content": [{**_PART, **more}]})


def thoughts(**more: Any) -> Body:
    return item(type="reasoning", content=[{"type": "reasoning_text", "text": "hm", **more}])


def function(**more: Any) -> Body:
    return {"tools": [{**FUNCTION, **more}], "max_output_tokens": 60}


def written(**more: Any) -> Body:
    return {"text": {"format": {"type": "json_schema", "schema": FORM, **more}}, "max_output_tokens": 60}


NESTED: dict[str, Row | tuple[Row, ...]] = {
    "StreamOptions.include_usage": at("chat", "used", {**PLAIN, "stream_options": {"include_usage": True}}, PLAIN),
    "StreamOptions.continuous_usage_stats": at(
        "chat", "used", {**PLAIN, "stream_options": {"continuous_usage_stats": True}}, PLAIN
    ),
    "StreamOptions.include_obfuscation": (
        at("chat", "label", {**PLAIN, "stream_options": {"include_obfuscation": False}}, PLAIN),
        at("chat", "refused", {**PLAIN, "stream_options": {"include_obfuscation": True}}, says="no padding"),
    ),
    "StructuredOutputs.json": at("chat", "used", structured(json=FORM)),
    "StructuredOutputs.regex": at("chat", "used", structured(regex="[0-9]{3}")),
    "StructuredOutputs.choice": at("chat", "used", structured(choice=["yes"])),
    "StructuredOutputs.grammar": at("completions", "used", structured(grammar='start: "yes"')),
    "StructuredOutputs.json_object": at("chat", "used", structured(json_object=True)),
    "StructuredOutputs.disable_any_whitespace": (
        at("chat", "used", structured(json=FORM, disable_any_whitespace=True), structured(json=FORM)),
        at("chat", "refused", structured(regex="a", disable_any_whitespace=True), says="disable_any_whitespace"),
    ),
    "StructuredOutputs.whitespace_pattern": at(
        "chat", "used", structured(json=FORM, whitespace_pattern="[ ]{3}"), structured(json=FORM)
    ),
    "ResponseFormat.type": (
        at("chat", "used", {"response_format": {"type": "json_object"}}, {"response_format": {"type": "text"}}),
        at("chat", "refused", {"response_format": {"type": "structural_tag", "structures": []}}, says="structural_tag"),
    ),
    "ResponseFormat.json_schema": (
        at("chat", "used", form(), _LONG),
        at("chat", "refused", {"response_format": {"type": "text", "json_schema": {"schema": FORM}}}, says="takes no"),
    ),
    "JsonSchema.schema": at("chat", "used", form(schema={"enum": ["yes"]}), form()),
    "JsonSchema.name": at("chat", "label", form(name="a"), form()),
    "JsonSchema.strict": at("chat", "label", form(strict=False), form()),
    "SpeculativeFields.method": at("chat", "refused", {"speculative": {"method": "eagle3"}}, says="not held here"),
    "SpeculativeFields.num_speculative_tokens": at(
        "chat",
        "used",
        {"speculative": {"num_speculative_tokens": 3}},
        shows=lambda reply: reply["speculative"]["num_speculative_tokens"],
    ),
    "SpeculativeFields.verifier": at("chat", "refused", {"speculative": {"verifier": "leniency"}}, says="may change"),
    "SpeculativeFields.policy": at(
        "chat",
        "used",
        {"speculative": {"policy": "fixed", "num_speculative_tokens": 3}},
        {"speculative": {"num_speculative_tokens": 3}},
        shows=lambda reply: reply["speculative"]["policy"],
    ),
    "Message.role": at("tokenize", "used", spoken("system"), spoken("user")),
    "Message.content": at("tokenize", "used", spoken("user", content="No."), spoken("user")),
    "Message.name": at("tokenize", "used", spoken("user", name="Ann"), spoken("user")),
    "Message.tool_calls": at("tokenize", "used", spoken("assistant", tool_calls=[CALLING]), spoken("assistant")),
    "Message.tool_call_id": at("tokenize", "used", spoken("tool", tool_call_id="c"), spoken("tool")),
    "Message.reasoning_content": at(
        "tokenize", "used", spoken("assistant", reasoning_content="hm"), spoken("assistant")
    ),
    "Message.parsed": at("tokenize", "label", spoken("assistant", parsed={"a": 1}), spoken("assistant")),
    "TextPart.type": wrong_type("tokenize", spoken("user", content=[{"type": "other", "text": "a"}])),
    "TextPart.text": at("tokenize", "used", spoken("user", content=[{"type": "text", "text": "a"}]), spoken("user")),
    "ToolCall.id": at("tokenize", "used", called(id="d"), called()),
    "ToolCall.index": at("tokenize", "label", called(index=0), called()),
    "ToolCall.type": wrong_type("tokenize", called(type="other")),
    "ToolCall.function": at("tokenize", "used", called(function={"name": "g"}), called()),
    "Called.name": at("tokenize", "used", called(function={"name": "h"}), called()),
    "Called.arguments": at("tokenize", "used", called(function={"arguments": '{"b": 1}'}), called()),
    "Called.parsed_arguments": at("tokenize", "label", called(function={"parsed_arguments": {"a": 1}}), called()),
    "Tool.type": wrong_type("tokenize", {**talk(USER), "tools": [{"type": "other", "function": {"name": "f"}}]}),
    "Tool.function": at("tokenize", "used", tooled(name="g"), tooled()),
    "Function.name": at("tokenize", "used", tooled(name="h"), tooled()),
    "Function.description": at("tokenize", "used", tooled(description="It does."), tooled()),
    "Function.parameters": at("tokenize", "used", tooled(parameters=FORM), tooled()),
    "Function.strict": at("chat", "used", bound(strict=True), bound(strict=False)),
    "ToolChoice.type": wrong_type("chat", {**_ONE, "tool_choice": {"type": "other", "function": {"name": "weather"}}}),
    "ToolChoice.function": at("chat", "used", choosing("clock"), choosing("weather")),
    "NamedFunction.name": at("chat", "used", choosing("clock"), choosing("weather")),
    "Prediction.type": wrong_type("chat", {"prediction": {"type": "other", "content": "a"}}),
    "Prediction.content": at(
        "chat",
        "used",
        {**_DRAFTS, "prediction": {"type": "content", "content": _COPY}},
        {**_DRAFTS, "prediction": {"type": "content", "content": "xyz"}},
        shows=_drafted,
    ),
    "FunctionTool.type": wrong_type("responses", {"tools": [{"type": "other"}]}),
    "FunctionTool.name": at("responses", "used", function(name="g"), function()),
    "FunctionTool.description": at("responses", "used", function(description="It does."), function()),
    "FunctionTool.parameters": at("responses", "used", function(parameters=FORM), function()),
    "FunctionTool.strict": at(
        "items", "used", {"input": "a", "tools": [{**FUNCTION, "strict": True}]}, {"input": "a", "tools": [FUNCTION]}
    ),
    "FunctionChoice.type": wrong_type("responses", {**function(), "tool_choice": {"type": "other", "name": "f"}}),
    "FunctionChoice.name": at(
        "responses", "refused", {**function(), "tool_choice": {"type": "function", "name": "x"}}, says="weather"
    ),
    "TextConfig.format": at("responses", "used", {"text": {"format": {"type": "json_object"}}}, {"text": {}}),
    "TextFormat.type": (
        at("responses", "used", {"text": {"format": {"type": "json_object"}}}, {"text": {"format": {"type": "text"}}}),
        wrong_type("responses", {"text": {"format": {"type": "other"}}}),
    ),
    "TextFormat.schema": at("responses", "used", written(schema={"enum": ["yes"]}), written()),
    "TextFormat.name": at("items", "label", {"input": "a", **written(name="b")}, {"input": "a", **written()}),
    "TextFormat.strict": at("items", "label", {"input": "a", **written(strict=False)}, {"input": "a", **written()}),
    "Reasoning.effort": at("items", "used", {"input": "a", "reasoning": {"effort": "low"}}, {"input": "a"}),
    "ObfuscationOptions.include_obfuscation": at(
        "responses", "refused", {"stream_options": {"include_obfuscation": True}}, says="no padding"
    ),
    "Part.type": wrong_type("responses", parts(type="other")),
    "Part.text": at("items", "used", parts(text="No."), parts()),
    "Part.annotations": at("items", "label", parts(annotations=[]), parts()),
    "Part.logprobs": at("items", "label", parts(logprobs=[]), parts()),
    "MessageItem.type": wrong_type("responses", item(**{**_MESSAGE, "type": "other"})),
    "MessageItem.role": at("items", "used", item(**{**_MESSAGE, "role": "system"}), item(**_MESSAGE)),
    "MessageItem.content": at("items", "used", item(**{**_MESSAGE, "content": "No."}), item(**_MESSAGE)),
    "MessageItem.phase": at("items", "label", item(**_MESSAGE, phase="commentary"), item(**_MESSAGE)),
    "CallItem.type": wrong_type("responses", item(**{**_CALL, "type": "other"})),
    "CallItem.call_id": at("items", "used", item(**{**_CALL, "call_id": "d"}), item(**_CALL)),
    "CallItem.name": at("items", "used", item(**{**_CALL, "name": "g"}), item(**_CALL)),
    "CallItem.arguments": at("items", "used", item(**{**_CALL, "arguments": '{"a": 1}'}), item(**_CALL)),
    "OutputItem.type": wrong_type("responses", item(**{**_OUTPUT, "type": "other"})),
    "OutputItem.call_id": at("items", "used", item(**{**_OUTPUT, "call_id": "d"}), item(**_OUTPUT)),
    "OutputItem.output": at("items", "used", item(**{**_OUTPUT, "output": "2"}), item(**_OUTPUT)),
    "ReasoningItem.type": wrong_type("responses", item(**{**_THOUGHT, "type": "other"})),
    "ReasoningItem.content": at("items", "used", item(**_THOUGHT), item(type="reasoning")),
    "ReasoningItem.summary": at("items", "used", item(**_SUMMARY), item(type="reasoning")),
    "ReasoningItem.encrypted_content": at(
        "responses", "refused", item(type="reasoning", encrypted_content="a"), says="encrypted_content"
    ),
    "Thought.type": at("responses", "refused", thoughts(type="other"), says="other"),
    "Thought.text": at("items", "used", thoughts(text="ha"), thoughts()),
    **{
        f"{table}.{name}": at("items", "label", item(**one, **{name: value}), item(**one))
        for table, one in (
            ("MessageItem", _MESSAGE),
            ("CallItem", _CALL),
            ("OutputItem", _OUTPUT),
            ("ReasoningItem", _THOUGHT),
        )
        for name, value in _LABELS.items()
    },
}
