"""`/v1/responses`: the order of its events, ids that stay the same, conversations that are sent back, refusals."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import ResponseStreamEvent

from outdraft import LLM, SamplingParams
from outdraft.engine.callers.answers import Answers
from outdraft.options.errors import DecodingError
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.schema.items import sealed
from outdraft.server.schema.responses import ResponsesRequest
from tests.server.chatty import HELLO, WEATHER

PATH = "/v1/responses"
STILL = {"chat_template_kwargs": {"enable_thinking": False}}
TOOL = {"type": "function", **WEATHER["function"]}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
ALL = f"<think>\nLet me see.\n</think>\n\nLook.\n{CALL}\nAnd again.\n{CALL}"
KNOWN = {one.model_fields["type"].annotation.__args__[0] for one in ResponseStreamEvent.__args__[0].__args__}
MESSAGE = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]
THOUGHT = [one.replace("output_text", "reasoning_text") for one in MESSAGE]
CALLED = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]


@pytest.fixture
def http(place: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=place, timeout=60) as made:
        yield made


def ask(http: httpx.Client, **more: Any) -> dict[str, Any]:
    reply = http.post(PATH, json={"input": "Hello", "temperature": 0, "max_output_tokens": 30, **more})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def stream(http: httpx.Client, **more: Any) -> list[dict[str, Any]]:
    reply = http.post(PATH, json={"input": "Hello", "temperature": 0, "max_output_tokens": 30, **more, "stream": True})
    assert reply.status_code == 200, reply.text
    blocks = [block.split("\n") for block in reply.text.removesuffix("\n\n").split("\n\n")]
    told = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name for name, _ in blocks] == [f"event: {one['type']}" for one in told]
    assert [one["sequence_number"] for one in told] == list(range(len(told)))
    assert {one["type"] for one in told} <= KNOWN
    return told


def order(told: list[dict[str, Any]]) -> list[str]:
    """The events, deltas in a row as one."""
    names = [one["type"].removeprefix("response.") for one in told]
    return [name for i, name in enumerate(names) if not (i and name == names[i - 1])]


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """What a repetition of the request gives again: neither ids nor times, nor how much of it was drafted."""
    gone = ("id", "created_at", "completed_at", "metrics")
    items = [{k: v for k, v in one.items() if k not in ("id", "call_id")} for one in response["output"]]
    sizes = {name: response["usage"][name] for name in ("input_tokens", "output_tokens")}
    return {**{k: v for k, v in response.items() if k not in gone}, "output": items, "usage": sizes}


def test_the_answer_is_the_chats(http: httpx.Client) -> None:
    told = ask(http, instructions="Be kind.", max_output_tokens=12)
    chat = http.post(
        "/v1/chat/completions",
        json={"messages": [{"role": "system", "content": "Be kind."}, *HELLO], "temperature": 0, "max_tokens": 12},
    ).json()
    (item,) = told["output"]
    assert item["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert (told["status"], told["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (told["usage"]["input_tokens"], told["usage"]["output_tokens"]) == (chat["usage"]["prompt_tokens"], 12)
    assert told["metrics"]["speculative_decoding"]["num_spec_tokens"] == told["speculative"]["num_speculative_tokens"]


def test_events_come_in_order_and_ids_stay(http: httpx.Client) -> None:
    asked = {
        "tools": [TOOL],
        "forced_prefix": ALL,
        "max_output_tokens": 160,
        "stop": "</tool_call>\n\n",
        "include": ["reasoning.encrypted_content"],
    }
    told = stream(http, **asked)
    items = [*THOUGHT, *MESSAGE, *CALLED, *MESSAGE, *CALLED]
    assert order(told)[: len(items) + 2] == ["created", "in_progress", *items]
    final = told[-1]["response"]
    assert told[-1]["type"] == f"response.{final['status']}"
    assert [one["response"]["status"] for one in told[:2]] == ["in_progress"] * 2 and told[0]["response"][
        "output"
    ] == []
    assert {one["response"]["id"] for one in told if "response" in one} == {final["id"]} and final["id"][:5] == "resp_"
    assert [one["item"] for one in told if one["type"] == "response.output_item.done"] == final["output"]
    assert [one["item"]["id"] for one in told if one["type"] == "response.output_item.added"] == [
        one["id"] for one in final["output"]
    ]
    assert [one["id"].split("_")[0] for one in final["output"][:5]] == ["rs", "msg", "fc", "msg", "fc"]
    for i, item in enumerate(final["output"]):
        mine = [one for one in told if one.get("output_index") == i and "item_id" in one]
        assert {one["item_id"] for one in mine} == {item["id"]}
        whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert "".join(one.get("delta", "") for one in mine) == whole
        done = next(one for one in mine if one["type"].endswith(("text.done", "arguments.done")))
        assert done.get("text", done.get("arguments")) == whole
    assert final["output"][0]["encrypted_content"] == sealed("Let me see.")
    assert without_ids(ask(http, **asked)) == without_ids(final)


def test_log_probabilities_are_those_of_the_text(http: httpx.Client) -> None:
    asked = {
        "forced_prefix": "<think>\nhm\n</think>\n\nLook, día.",
        "max_output_tokens": 40,
        "top_logprobs": 2,
        "include": ["message.output_text.logprobs"],
    }
    told = stream(http, **asked)
    (_, message) = told[-1]["response"]["output"]
    listed = message["content"][0]["logprobs"]
    assert [one for event in told for one in event.get("logprobs", []) if event["type"].endswith("delta")] == listed
    joined = b"".join(bytes(one["bytes"]) for one in listed).decode()
    assert joined.strip() == message["content"][0]["text"].strip() and "hm" not in joined
    assert [len(one["top_logprobs"]) for one in listed] == [2] * len(listed)
    assert ask(http, **asked)["output"][1]["content"][0]["logprobs"] == listed


@pytest.mark.parametrize("interval", [0, 1, 50])
@pytest.mark.parametrize(("begun", "size"), [("<table>", 8), ("<th", 8), ("‹", 8), ("<", 1)])
def test_log_probabilities_of_what_begins_like_a_thought(
    http: httpx.Client, begun: str, size: int, interval: int
) -> None:
    asked = {"forced_prefix": begun, "max_output_tokens": size, "include": ["message.output_text.logprobs"]}
    told = stream(http, **asked, stream_interval=interval)[-1]["response"]["output"]
    for (message,) in (told, ask(http, **asked)["output"]):
        content = message["content"][0]
        assert b"".join(bytes(one["bytes"]) for one in content["logprobs"]).decode() == content["text"]
        assert content["text"].startswith(begun)


@pytest.mark.parametrize("interval", [0, 1, 50])
def test_log_probabilities_of_a_call_belong_to_no_message(http: httpx.Client, interval: int) -> None:
    """Wherever a pass, or a chunk, ends: the tokens of each message alone are reported."""
    prefix, size = f"Look.\n{CALL}\nNow día.\n{CALL}", 120
    asked = {
        "tools": [TOOL],
        "forced_prefix": prefix,
        "max_output_tokens": size,
        "stop": "</tool_call>\n\n",
        "include": ["message.output_text.logprobs"],
        **STILL,
    }
    told = stream(http, **asked, stream_interval=interval)[-1]["response"]["output"]
    for output in (told, ask(http, **asked)["output"]):
        messages = [one["content"][0] for one in output if one["type"] == "message"]
        for one, begun in zip(messages, ("Look.", "Now día."), strict=False):
            joined = b"".join(bytes(each["bytes"]) for each in one["logprobs"]).decode()
            assert joined.strip() == one["text"].strip() and one["text"].lstrip().startswith(begun)
        assert len(messages) >= 2 and [one["type"] for one in output].count("function_call") == 2


def test_what_was_resumed_has_no_log_probabilities(http: httpx.Client) -> None:
    same: dict[str, Any] = {"seed": 3, "temperature": 1, **STILL}
    chat = {"messages": HELLO, "max_tokens": 8, "return_token_ids": True, **same}
    ids = http.post("/v1/chat/completions", json=chat).json()["choices"][0]["token_ids"][:3]
    asked = {"include": ["message.output_text.logprobs"], "max_output_tokens": 8, **same}
    whole = ask(http, **asked)["output"][0]["content"][0]
    for told in (
        ask(http, **asked, resume_token_ids=[ids]),
        stream(http, **asked, resume_token_ids=[ids])[-1]["response"],
    ):
        assert told["output"][0]["content"][0]["logprobs"] == whole["logprobs"][3:]


def test_the_official_client_goes_on_with_what_it_got(chat_official: openai.OpenAI, chat_llm: LLM) -> None:
    asked: dict[str, Any] = {"model": "target", "tools": [TOOL], "max_output_tokens": 60, "extra_body": STILL}
    choice = {"type": "function", "name": "weather"}
    first = chat_official.responses.create(input="Hello", tool_choice=choice, **asked)
    (call,) = first.output
    assert call.type == "function_call" and json.loads(call.arguments)["city"] in ("Rome", "Bern", "Oslo")
    with chat_official.responses.stream(input="Hello", tool_choice=choice, **asked) as events:
        seen = [event.type for event in events]
        final = events.get_final_response()
    assert seen[-1] == "response.completed" and final.output[0].type == "function_call"
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    second = chat_official.responses.create(
        input=[{"role": "user", "content": "Hello"}, *final.output, result], temperature=0, **asked
    )
    called = f'<tool_call>{{"name": "weather", "arguments": {json.dumps(json.loads(final.output[0].arguments))}}}'
    rendered = chat_llm.get_tokenizer().chat_template.render(
        [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": f"{called}</tool_call>"},
            {"role": "tool", "content": "rain"},
        ],
        tools=[{"type": "function", "function": WEATHER["function"]}],
        enable_thinking=False,
    )
    plain = chat_llm.generate(rendered.text, SamplingParams(max_tokens=60), num_speculative_tokens=0)
    assert second.output_text == plain.text.lstrip()  # blanks behind a thought are left out


@pytest.mark.parametrize(
    "thought", [{"content": [{"type": "reasoning_text", "text": "hm"}]}, {"encrypted_content": sealed("hm")}]
)
def test_items_of_a_turn_are_one_message(thought: dict[str, Any]) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}', "status": "completed"}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hel"}, {"type": "input_text", "text": "lo"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], **thought},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Look.", "annotations": []}],
        },
        call,
        {**call, "call_id": "d"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "2"}]},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Yes."},
    ]
    calls = [{"id": one, "function": {"name": "f", "arguments": '{"a": 1}'}} for one in "cd"]
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Look.", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "d", "content": "2"},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Yes."},
    ]
    read = ResponsesRequest.model_validate({"input": items, "instructions": "Be kind."}).chat()
    assert read.messages == ChatRequest.model_validate({"messages": messages}).messages


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "nothing is stored here"),
        ({"conversation": "conv_1"}, "conversation", "send the whole conversation in input"),
        ({"background": True}, "background", "written at once"),
        ({"store": True}, "store", "nothing is stored here"),
        ({"tools": [{"type": "web_search"}]}, "tools.0", "'web_search' is not for this server"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", "'web_search' is not for this server"),
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0", "stores nothing"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input.0.content.0",
            "'input_image' is not for this server",
        ),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]}, "input", "no JSON"),
        ({"input": [{"type": "reasoning", "encrypted_content": "gAAA"}]}, "input", "another server"),
        ({"input": []}, "input", "at least 1 item"),
        ({"truncation": "auto"}, "truncation", "never cut"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort", "template does not use it"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "not summed up"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "in instructions"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "needs schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "nope"}}}}, "text.format", "type: nope"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format", "'grammar' is not for this server"),
        (
            {"tools": [TOOL], "tool_choice": "required", "text": {"format": {"type": "json_object"}}},
            "tool_choice",
            "text.format for another text",
        ),
        ({"max_tokens": 4}, "max_tokens", "max_output_tokens"),
        ({"max_output_tokens": 3, "min_tokens": 4}, "min_tokens", "max_output_tokens"),
        ({"n": 2}, "n", "one text"),
        ({"top_logprobs": 2}, "top_logprobs", "needs include"),
        ({"input": [{"role": "user", "content": "a"}] * 4096, "instructions": "x"}, "input", "4097 messages"),
        ({"include": ["file_search_call.results"]}, "include.0", "file_search_call.results"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation", "no padding"),
    ],
)
def test_refused_by_name(http: httpx.Client, body: dict[str, Any], param: str, says: str) -> None:
    reply = http.post(PATH, json={"input": "Hello", "max_output_tokens": 4, **body})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert says in error["message"] and error["param"] == param and "of structured_outputs" not in error["message"]


def test_the_developer_is_the_system_where_the_template_has_none(http: httpx.Client) -> None:
    def size(role: str, template: str) -> int:
        messages = [{"role": role, "content": "Be kind."}, *HELLO]
        return int(http.post("/tokenize", json={"messages": messages, "chat_template": template}).json()["count"])

    shows = "{% for m in messages if m.role in ROLES %}{{ m.role }}{{ m.content }}{% endfor %}"
    without, known = shows.replace("ROLES", "('system',)"), shows.replace("ROLES", "('system', 'developer')")
    prose = without + "{# no developer #}"  # the word alone is no role
    assert size("developer", without) == size("developer", prose) == size("system", without) > 0
    assert size("developer", known) != size("system", known)


def test_null_says_nothing(http: httpx.Client) -> None:
    nothing = dict.fromkeys(("previous_response_id", "conversation", "max_tool_calls", "instructions", "prompt", "n"))
    assert without_ids(ask(http, **nothing)) == without_ids(ask(http))
    assert http.post(PATH, json={"input": "Hello", "unheard_of": None}).status_code == 400


@pytest.mark.logs_faults
def test_a_stream_that_breaks_off_ends_with_failed(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(answers: Answers) -> None:
        raise DecodingError("the cable at /dev/null is loose")

    monkeypatch.setattr(Answers, "raise_error", fail)
    told = stream(http, max_output_tokens=5)
    assert order(told) == ["created", "in_progress", *MESSAGE, "error", "failed"]
    event, failed = told[-2], told[-1]["response"]
    assert failed["status"] == "failed" and failed["output"][0]["status"] == "incomplete"
    what = {"message": "the answer broke off: the cable at ... is loose", "param": None}
    assert {name: event[name] for name in ("code", *what)} == {"code": "decoding", **what}
    assert failed["error"] == {"code": "server_error", "type": "server_error", **what}


def test_an_answer_without_a_word_is_an_empty_message(http: httpx.Client, chat_llm: LLM) -> None:
    (end,) = chat_llm.get_tokenizer().special_ids
    told = stream(http, allowed_token_ids=[end])
    assert order(told) == ["created", "in_progress", *[one for one in MESSAGE if "delta" not in one], "completed"]
    assert told[-1]["response"]["output"][0]["content"][0]["text"] == ""
