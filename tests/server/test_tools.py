"""Tools, thoughts and templates of a chat over HTTP: whole and streamed, read from text and enforced by grammar."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from outdraft import LLM, SamplingParams
from outdraft.options.errors import RequestError
from tests.server.chatty import CLOCK, HELLO, QWEN, WEATHER, events, served, write_model

PATH = "/v1/chat/completions"
STILL = {"chat_template_kwargs": {"enable_thinking": False}}  # the prompt closes the thought
CALLING = {"type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'


@pytest.fixture
def http(place: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=place, timeout=120) as made:
        yield made


def ask(http: httpx.Client, **more: Any) -> dict[str, Any]:
    reply = http.post(PATH, json={"messages": HELLO, "temperature": 0, "max_tokens": 60, **more})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def refused(http: httpx.Client, **more: Any) -> dict[str, Any]:
    reply = http.post(PATH, json={"messages": HELLO, "max_tokens": 4, **more})
    assert reply.status_code == 400, reply.text
    return dict(reply.json()["error"])


def written(text: str) -> dict[str, Any]:
    """Settings under which the answer is exactly this text, and ends by itself."""
    return {"structured_outputs": {"choice": [text]}}


def test_a_required_call_is_valid_and_streams_the_same(http: httpx.Client) -> None:
    asked = {
        "messages": HELLO,
        "tools": [CLOCK, WEATHER],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "seed": 3,
        "max_tokens": 60,
        **STILL,
    }
    choice = http.post(PATH, json=asked).json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert call["id"].startswith("call_") and call["function"]["name"] in ("clock", "weather")
    pieces = events(http, PATH, asked)
    deltas = [one["choices"][0]["delta"] for one in pieces]
    assert not any(one.get("content") for one in deltas)
    (streamed,) = [call for one in deltas for call in one.get("tool_calls", [])]
    assert (streamed["index"], streamed["function"]) == (0, call["function"])
    assert pieces[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_named_function_has_the_arguments_of_its_schema(place: str) -> None:
    official = openai.OpenAI(base_url=f"{place}/v1", api_key="none", max_retries=0)
    for seed in range(3):
        reply = official.chat.completions.create(
            model="target",
            messages=HELLO,
            tools=[CLOCK, WEATHER],
            seed=seed,
            max_tokens=60,  # type: ignore[arg-type]
            extra_body=STILL,
            tool_choice={"type": "function", "function": {"name": "weather"}},
        )
        calls = reply.choices[0].message.tool_calls
        assert calls is not None and len(calls) == 1 and calls[0].type == "function"
        assert calls[0].function.name == "weather"
        given = json.loads(calls[0].function.arguments)
        assert given["city"] in ("Rome", "Bern", "Oslo") and 1 <= given["days"] <= 9 and len(given) == 2


def test_the_official_stream_helper_gathers_the_call(place: str) -> None:
    official = openai.OpenAI(base_url=f"{place}/v1", api_key="none", max_retries=0)
    with official.chat.completions.stream(
        model="target",
        messages=HELLO,
        tools=[WEATHER],
        tool_choice="required",
        seed=1,
        max_tokens=60,  # type: ignore[arg-type]
        parallel_tool_calls=False,
        extra_body=STILL,
    ) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls is not None and json.loads(calls[0].function.arguments)["city"] in ("Rome", "Bern", "Oslo")


def test_speculation_changes_no_call(http: httpx.Client, chat_llm: LLM) -> None:
    asked = {
        "tools": [WEATHER],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 1,
        "seed": 11,
        "return_token_ids": True,
        **STILL,
    }
    ids = ask(http, **asked)["choices"][0]["token_ids"]
    plain = chat_llm._setup.directory
    with (
        LLM(plain, drafter="none") as alone,
        served(alone) as address,
        httpx.Client(base_url=address, timeout=120) as other,
    ):
        assert ask(other, **asked)["choices"][0]["token_ids"] == ids


@pytest.mark.parametrize("strict", [False, True])
def test_text_before_a_call_streams_as_content_and_no_markup_does(http: httpx.Client, strict: bool) -> None:
    tool = {**WEATHER, "function": {**WEATHER["function"], "strict": strict}}
    asked = {
        "messages": HELLO,
        "tools": [tool],
        "forced_prefix": f"Let me look.\n{CALL}",
        "temperature": 0,
        "max_tokens": 80,
        "stop": "</tool_call>",
        **STILL,
    }
    pieces = events(http, PATH, asked)
    deltas = [one["choices"][0]["delta"] for one in pieces]
    content = "".join(one.get("content", "") for one in deltas)
    (call,) = [call for one in deltas for call in one.get("tool_calls", [])]
    assert content == "Let me look." and pieces[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome", "days": 2}


def test_only_the_first_call_where_calls_may_not_be_parallel(http: httpx.Client) -> None:
    one = ask(http, tools=[WEATHER], forced_prefix=f"{CALL}\n{CALL}", parallel_tool_calls=False, max_tokens=90)
    two = ask(http, tools=[WEATHER], forced_prefix=f"{CALL}\n{CALL}", max_tokens=90)
    assert [len(each["choices"][0]["message"]["tool_calls"]) for each in (one, two)] == [1, 2]


def test_without_tools_the_same_text_is_content(http: httpx.Client) -> None:
    for more in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        message = ask(http, **written(CALL), **more, **STILL)["choices"][0]["message"]
        assert message["content"] == CALL and "tool_calls" not in message


def test_a_form_or_a_call(http: httpx.Client) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}
    choice = ask(http, tools=[WEATHER], max_tokens=80, response_format=form, **STILL)["choices"][0]
    message = choice["message"]
    assert message.get("tool_calls") or json.loads(message["content"]) in ("yes", "no")


def test_thoughts_are_kept_apart_and_counted(http: httpx.Client) -> None:
    text = "<think>\nLet me see.\n</think>\n\nIt is four."
    forced = ask(http, forced_prefix=text, max_tokens=40)
    message, usage = forced["choices"][0]["message"], forced["usage"]["completion_tokens_details"]
    assert message["reasoning_content"] == "Let me see." and message["content"].startswith("It is four.")
    assert 3 <= usage["reasoning_tokens"] < forced["usage"]["completion_tokens"]
    pieces = events(
        http,
        PATH,
        {
            "messages": HELLO,
            "temperature": 0,
            "forced_prefix": text,
            "max_tokens": 40,
            "stream_options": {"include_usage": True},
        },
    )
    deltas = [one["choices"][0]["delta"] for one in pieces if one["choices"]]
    assert "".join(one.get("reasoning_content", "") for one in deltas) == "Let me see."
    assert "".join(one.get("content", "") for one in deltas) == message["content"]
    streamed = pieces[-1]["usage"]["completion_tokens_details"]
    assert streamed["reasoning_tokens"] == usage["reasoning_tokens"]


@pytest.mark.parametrize("text", ["<table>", "<", "\n<th", "It"])
def test_an_answer_that_begins_like_a_thought_is_none(http: httpx.Client, text: str) -> None:
    usage = ask(http, forced_prefix=text, max_tokens=8)["usage"]["completion_tokens_details"]
    assert usage["reasoning_tokens"] == 0


def test_template_arguments_reach_the_template(http: httpx.Client) -> None:
    def size(**more: Any) -> int:
        return int(ask(http, max_tokens=1, **more)["usage"]["prompt_tokens"])

    plain = size()
    assert size(chat_template_kwargs={"enable_thinking": False}) > plain
    assert size(tools=[WEATHER]) > plain and size(tools=[WEATHER], tool_choice="none") == plain
    assert size(add_generation_prompt=False) < plain
    assert size(chat_template="{{ messages[0].content }}") < plain


def test_a_template_for_tools_of_its_own_is_taken(tmp_path: Path) -> None:
    listed = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": QWEN}]
    with (
        LLM(write_model(tmp_path / "model", listed), drafter="ngram") as llm,
        served(llm) as address,
        httpx.Client(base_url=address, timeout=120) as client,
    ):
        codec, asked = llm.get_tokenizer(), {"max_tokens": 1, "return_token_ids": True}
        assert codec.decode(ask(client, **asked)["prompt_token_ids"]).endswith("plain")
        assert "tools: " in codec.decode(ask(client, tools=[WEATHER], **asked, **STILL)["prompt_token_ids"])
        assert refused(client, **STILL)["param"] == "chat_template_kwargs.enable_thinking"


def test_the_last_message_goes_on(http: httpx.Client, chat_llm: LLM) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "It was late "}]
    reply = ask(http, messages=messages, continue_final_message=True, max_tokens=8, return_token_ids=True)
    prompt = chat_llm.get_tokenizer().decode(reply["prompt_token_ids"])
    assert prompt.endswith("It was late ")
    assert reply["choices"][0]["message"]["content"] == chat_llm.generate(prompt, max_tokens_of(8)).text
    assert "assistant" in refused(http, continue_final_message=True)["message"]


def test_what_goes_on_is_a_thought_where_one_is_open(chat_llm: LLM) -> None:
    """Of a model that begins with a thought, where no mark says otherwise."""
    yes: dict[str, Any] = {"structured_outputs": {"choice": ["yes"]}, "continue_final_message": True}
    with (
        served(chat_llm, reasoning_parser="deepseek_r1") as address,
        httpx.Client(base_url=address, timeout=120) as client,
    ):
        for begun in ("It was late ", "<think>\nLet me see.\n</think>\n\nIt was"):
            messages = [*HELLO, {"role": "assistant", "content": begun}]
            reply = ask(client, messages=messages, **yes)
            message = reply["choices"][0]["message"]
            assert message["content"] == "yes" and "reasoning_content" not in message
            assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
        messages = [*HELLO, {"role": "assistant", "content": "<think>\nLet me"}]
        message = ask(client, messages=messages, forced_prefix=" see.\n</think>\n\n", **yes)["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == (" see.", "yes")
        assert "reasoning_content" in ask(client, max_tokens=4)["choices"][0]["message"]


def max_tokens_of(count: int) -> Any:
    from outdraft import SamplingParams

    return SamplingParams(max_tokens=count)


def test_earlier_calls_are_shown_as_tables(http: httpx.Client, chat_llm: LLM) -> None:
    call = {"id": "call_1", **CALLING, "function": dict(CALLING["function"])}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    reply = ask(http, messages=messages, max_tokens=1, return_token_ids=True)
    prompt = chat_llm.get_tokenizer().decode(reply["prompt_token_ids"])
    assert '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>' in prompt
    call["function"]["arguments"] = "{"  # type: ignore[index]
    error = refused(http, messages=messages)
    assert "no JSON object" in error["message"] and error["param"] == "messages"
    with pytest.raises(RequestError, match="no JSON object"):
        chat_llm.chat(messages)


@pytest.mark.parametrize(
    "last",
    [
        {"role": "user", "content": [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]},
        {"role": "developer", "content": "Be kind."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **CALLING}]},
        {"role": "assistant", "content": "hi", "name": None, "tool_calls": None},
    ],
    ids=["parts", "a developer", "a call", "nothing said"],
)
def test_the_front_door_writes_the_same_prompt(http: httpx.Client, chat_llm: LLM, last: dict[str, Any]) -> None:
    messages = [*HELLO, last]
    reply = ask(http, messages=messages, max_tokens=1, return_token_ids=True)
    assert list(chat_llm.chat(messages, SamplingParams(max_tokens=1)).prompt_token_ids) == reply["prompt_token_ids"]


def test_the_front_door_goes_on_with_a_message_as_users_of_vllm_ask(tmp_path: Path) -> None:
    """Also where the template names neither tools nor the beginning of an answer."""
    messages = [*HELLO, {"role": "assistant", "content": "It was late "}]
    words = [{}, {"add_generation_prompt": False}, {"tools": []}]
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    with LLM(write_model(tmp_path / "model", template), drafter="none") as llm:
        params = SamplingParams(max_tokens=1)
        asked = [llm.chat(messages, params, continue_final_message=True, **one) for one in words]
    assert len({one.prompt_token_ids for one in asked}) == 1


def test_the_front_door_refuses_what_the_template_does_not_use(chat_llm: LLM) -> None:
    for more in ({"mood": 1}, {"control": 5}):
        with pytest.raises(RequestError, match="template does not use it"):
            chat_llm.chat(HELLO, chat_template_kwargs=more)
    with pytest.raises(RequestError, match="'image_url' is not for this model"):
        chat_llm.chat([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])


@pytest.mark.parametrize(("older", "newer"), [(2, 9), (9, 2)])
def test_of_two_limits_the_smaller_holds(http: httpx.Client, older: int, newer: int) -> None:
    reply = ask(http, max_tokens=older, max_completion_tokens=newer, logit_bias={"298": 60}, **STILL)
    assert reply["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
            "the tools are weather",
        ),
        ({"tools": [WEATHER, WEATHER]}, "tools", "twice"),
        (
            {"tools": [WEATHER], "tool_choice": "required", "response_format": {"type": "json_object"}},
            "tool_choice",
            "leave one out",
        ),
        ({"reasoning_effort": "high"}, "reasoning_effort", "template does not use it"),
        ({"chat_template_kwargs": {"mood": 1}}, "chat_template_kwargs.mood", "template does not use it"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs", "a field of the request"),
        ({"chat_template": "{% if %}"}, "chat_template", "does not compile"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message", "leave one out"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        *[({"logit_bias": {key: 1}}, "logit_bias", "token ids") for key in ("05", "1_0", " 5 ", "٥", "", "+5")],
        ({"structured_outputs": {"grammar": 'start: "a"'}}, "structured_outputs", "behind a thought"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs", "non-empty texts"),
        ({"structured_outputs": {}}, "structured_outputs", "takes exactly one of"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": "b"}}, "structured_outputs", "not for regex"),
        ({"negative_prompt": "a"}, "negative_prompt", "set guidance_scale=1.5"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages.0.content.0",
            "'image_url' is not for this server, which takes text",
        ),
    ],
)
def test_refusals(http: httpx.Client, body: dict[str, Any], param: str, says: str) -> None:
    error = refused(http, **body)
    assert says in error["message"] and error["param"] == param


def test_a_schema_bomb_is_refused_by_the_functions_name(http: httpx.Client) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    tool = {"type": "function", "function": {"name": "deep", "parameters": deep}}
    assert "the schema of deep" in refused(http, tools=[tool], tool_choice="required")["message"]


def test_models_tells_the_formats(http: httpx.Client) -> None:
    told = http.get("/v1/models").json()["data"][0]
    assert (told["tool_call_parser"], told["reasoning_parser"]) == ("hermes", "qwen3")


def test_without_a_template_each_field_of_one_is_refused(client: httpx.Client) -> None:
    for name, value in (
        ("tools", [WEATHER]),
        ("reasoning_effort", "low"),
        ("continue_final_message", True),
        ("chat_template_kwargs", {"a": 1}),
        ("chat_template_kwargs", {"template": "x"}),
        ("add_generation_prompt", False),
    ):
        reply = client.post(PATH, json={"messages": HELLO, name: value, "max_tokens": 1})
        assert reply.status_code == 400, name
        told = reply.json()["error"]["message"]
        assert "the model has none" in told or "--tool-call-parser" in told


def test_a_prediction_is_something_to_copy_from(client: httpx.Client, chat_model: Path) -> None:
    """Its text is drafted, and the answer is the same; a server that copies from nothing but the prompt refuses it."""
    asked = {"messages": HELLO, "temperature": 0, "max_tokens": 24}
    with LLM(chat_model, drafter="llma", num_speculative_tokens=4) as llm, served(llm) as address:
        plain = httpx.post(f"{address}{PATH}", json=asked, timeout=60).json()
        likely = {"type": "content", "content": plain["choices"][0]["message"]["content"]}
        told = httpx.post(f"{address}{PATH}", json={**asked, "prediction": likely}, timeout=60).json()
    assert told["choices"] == plain["choices"]
    accepted = [one["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] for one in (plain, told)]
    assert accepted[0] == 0 < accepted[1]
    for name, text in (("prediction", {"type": "content", "content": "a"}), ("references", ["a"])):
        error = client.post(PATH, json={**asked, name: text}).json()["error"]
        assert error["param"] == name and "(ngram) copies from no text beside the prompt" in error["message"]
