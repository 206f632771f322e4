"""Every field of every request is used, or refused by its name, or stands on the short list of docs/server.md.

The fields are read from the schemas, so that a new one fails here until it has a row (`field_rows.py`).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from pydantic import BaseModel
from serving import serving

from outdraft import LLM
from outdraft.server.schema.base import Body, JsonTable
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.schema.completions import CompletionRequest
from outdraft.server.schema.responses import ResponsesRequest
from outdraft.server.schema.tokens import DetokenizeRequest, GenerateRequest, TokenizeRequest, TokenSampling
from tests.server.chatty import HELLO
from tests.server.field_rows import ONLY, WRITING, Row
from tests.server.nested_rows import NESTED

STILL = {"chat_template_kwargs": {"enable_thinking": False}}
ENDPOINTS: dict[str, tuple[type[BaseModel], str, dict[str, Any]]] = {
    "completions": (CompletionRequest, "/v1/completions", {"prompt": "It was late when", "max_tokens": 8, "seed": 1}),
    "chat": (ChatRequest, "/v1/chat/completions", {"messages": HELLO, "max_tokens": 8, "seed": 1, **STILL}),
    "responses": (ResponsesRequest, "/v1/responses", {"input": "Hello", "max_output_tokens": 8, "seed": 1, **STILL}),
    "generate": (
        GenerateRequest,
        "/inference/v1/generate",
        {"token_ids": [977, 343, 3266, 536], "sampling_params": {"max_tokens": 8, "seed": 1}},
    ),
    "sampling": (TokenSampling, "/inference/v1/generate", {"max_tokens": 8, "seed": 1}),
    "tokenize": (TokenizeRequest, "/tokenize", {"prompt": "It was late when"}),
    "detokenize": (DetokenizeRequest, "/detokenize", {"tokens": [298, 0]}),
}
CHANGES = (
    "id",
    "created",
    "created_at",
    "completed_at",
    "request_id",
    "metrics",
    "speculative",
    "call_id",
    "item_id",
    "prompt_tokens_details",
    "completion_tokens_details",
    "input_tokens_details",
    "output_tokens_details",
    "token_sources",
)


_WITH_A_LIMIT = (("completions", "max_tokens"), ("sampling", "max_tokens"))  # of their own, where it is left out
_PLAIN = Row(kind="label", given={})


def names(model: type[BaseModel]) -> list[str]:
    """As they stand in a body."""
    return [one.alias or name for name, one in model.model_fields.items()]


def tables(hint: Any) -> Iterator[type[BaseModel]]:
    """The tables that a field may hold."""
    if isinstance(hint, type) and issubclass(hint, JsonTable):
        yield hint
    for one in get_args(hint):
        yield from tables(one)


def nested() -> dict[str, type[BaseModel]]:
    """All tables within requests."""
    found: dict[str, type[BaseModel]] = {}
    waiting = [model for model, _, _ in ENDPOINTS.values()]
    while waiting:
        for one in waiting.pop().model_fields.values():
            for table in tables(one.annotation):
                if table.__name__ not in found and table is not TokenSampling:
                    found[table.__name__] = table
                    waiting.append(table)
    return found


FIELDS = [(endpoint, name) for endpoint, (model, _, _) in ENDPOINTS.items() for name in names(model)]
INNER = [f"{table}.{name}" for table, model in nested().items() for name in names(model)]


def rows(found: Row | tuple[Row, ...] | None) -> tuple[Row, ...]:
    assert found is not None, "a field without a row: say in tests/server/field_rows.py what it does"
    return found if isinstance(found, tuple) else (found,)


@pytest.fixture(scope="module")
def quoting(chat_model: Path) -> Iterator[LLM]:
    """One that drafts from references alone, and remembers nothing of earlier requests."""
    with LLM(chat_model, drafter="llma") as made:
        yield made


@pytest.fixture(scope="module")
def asking(quoting: LLM) -> Iterator[httpx.Client]:
    with (
        serving(quoting, served_model_name=("target", "other"), trust_request_chat_template=True) as (address, _),
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        yield client


def ask(client: httpx.Client, endpoint: str, more: Any) -> httpx.Response:
    _, path, own = ENDPOINTS[endpoint]
    body = {**own, **more}
    if endpoint == "sampling":
        body = {"token_ids": [977, 343, 3266, 536], "sampling_params": body}
    if endpoint == "generate" and (settings := {name: body.pop(name) for name in [*body] if name in _SETTINGS}):
        body["sampling_params"] = {**body["sampling_params"], **settings}
    return client.post(path, json=body)


_SETTINGS = set(names(TokenSampling)) - set(names(GenerateRequest))


def lasting(value: Any) -> Any:
    """Without what is another each time: ids, times, what was drafted."""
    if isinstance(value, dict):
        return {name: lasting(one) for name, one in value.items() if name not in CHANGES}
    return [lasting(one) for one in value] if isinstance(value, list) else value


def seen(reply: httpx.Response, row: Row) -> Any:
    assert reply.status_code == 200, reply.text
    if reply.headers["content-type"].startswith("text/event-stream"):
        lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
        return [(row.shows or lasting)(json.loads(line)) for line in lines]
    return (row.shows or lasting)(reply.json())


_BASES: dict[str, Any] = {}  # what was seen of requests without a field, twice the same


def base(client: httpx.Client, endpoint: str, row: Row) -> Any:
    """What is seen of the request without the field."""
    name = f"{endpoint} {json.dumps(row.without)} {row.shows}"
    if name not in _BASES:
        _BASES[name], again = (seen(ask(client, endpoint, row.without), row) for _ in range(2))
        assert _BASES[name] == again, "it changes by itself, and so shows nothing"
    return _BASES[name]


def check(client: httpx.Client, endpoint: str, name: str, row: Row, llm: LLM, patch: pytest.MonkeyPatch) -> None:
    if row.kind == "refused":
        reply = ask(client, endpoint, row.given)
        error = reply.json()["error"]
        assert reply.status_code == (404 if name == "model" and endpoint != "sampling" else 400), reply.text
        assert row.says in error["message"] and name in f"{error['param']} {error['message']}"
        return
    told: list[Any] = []
    opens = llm.open

    async def noted(prompts: Any, params: Any, **more: Any) -> Any:
        told.append(more)
        return await opens(prompts, params, **more)

    patch.setattr(llm, "open", noted)
    without, given = base(client, endpoint, row), seen(ask(client, endpoint, row.given), row)
    if row.kind == "used":
        assert without != given
    elif row.kind == "engine":
        assert without == given and str(row.given[name]) in str(told[-1][name])
    elif name == "metadata" and endpoint == "responses":  # it is given back
        assert given["metadata"] == row.given["metadata"]
    elif isinstance(given, list):  # a stream
        assert without == given
    else:
        same = [{k: v for k, v in one.items() if k != name} for one in (without, given)]  # or is repeated
        assert same[0] == same[1]


@pytest.mark.parametrize(("endpoint", "name"), FIELDS)
def test_fields_of_requests(
    asking: httpx.Client, quoting: LLM, endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in rows(ONLY.get(f"{endpoint}.{name}", WRITING.get(name))):
        assert (
            row.kind != "accepted" or name in (*Body.model_fields, "client_metadata") or row.given == {"store": False}
        )
        check(asking, endpoint, name, row, quoting, monkeypatch)


def optional(endpoint: str) -> list[str]:
    """The fields that a request may leave out, and that a reply does not stand on."""
    model, _, own = ENDPOINTS[endpoint]
    fields = [(one.alias or name, one.is_required()) for name, one in model.model_fields.items()]
    return [name for name, is_required in fields if not is_required and name not in own]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_null_says_nothing(asking: httpx.Client, endpoint: str) -> None:
    """All at once: the reply is that to the request without the fields, but for those that are refused by name."""
    nulls, hints = dict.fromkeys(optional(endpoint)), ENDPOINTS[endpoint][0].model_fields
    while (given := ask(asking, endpoint, nulls)).status_code == 400:
        name = given.json()["error"]["param"].rpartition(".")[2]
        del nulls[name]  # which is a key error, where another one is named
        assert endpoint in ("sampling", "tokenize") or type(None) not in get_args(hints[name].annotation)
    assert nulls and seen(given, _PLAIN) == seen(ask(asking, endpoint, {}), _PLAIN)


@pytest.mark.parametrize(("endpoint", "name"), _WITH_A_LIMIT)
def test_a_limit_that_is_null_is_the_endpoints(
    asking: httpx.Client, endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path, own = ENDPOINTS[endpoint]
    given = ask(asking, endpoint, {name: None})
    monkeypatch.setitem(ENDPOINTS, endpoint, (model, path, {key: one for key, one in own.items() if key != name}))
    assert seen(given, _PLAIN) == seen(ask(asking, endpoint, {}), _PLAIN)


def conversation(body: Any) -> tuple[Any, ...]:
    """What is asked of the engine in a response's stead."""
    chat = ResponsesRequest.model_validate(body).chat()
    return chat.messages, chat.tools, chat.reasoning_effort, chat.form()


@pytest.mark.parametrize("place", INNER)
def test_fields_of_tables_within(
    asking: httpx.Client, quoting: LLM, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = place.rpartition(".")[2]
    for row in rows(NESTED.get(place)):
        if row.at == "items":  # what is asked of the engine is the conversation
            one, other = (conversation(body) for body in (row.without, row.given))
            assert one != other if row.kind == "used" else one == other
            continue
        check(asking, row.at, name, row, quoting, monkeypatch)


def test_no_row_is_left_over() -> None:
    known = {f"{endpoint}.{name}" for endpoint, name in FIELDS}
    assert {*ONLY} <= known and {*WRITING} <= {name for _, name in FIELDS} and {*NESTED} == {*INNER}


def test_the_short_list_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    assert all(
        f"`{name}`" in page.partition("are accepted:")[2].partition("\n\n")[0]
        for name in (*Body.model_fields, "client_metadata", "store")
    )


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("suffix", "from left to right"),
        ("guided_json", "{json: schema}"),
        ("guided_regex", "{regex: pattern}"),
        ("guided_choice", "{choice: [...]}"),
        ("guided_grammar", "{grammar: text}"),
        ("guided_json_object", "{json_object: true}"),
        ("structural_tag", "{grammar: ...}"),
        ("n_predict", "max_tokens"),
        ("repeat_penalty", "repetition_penalty"),
        ("temprature", "temperature"),
        ("skip_special_tokens", "return_token_ids"),
        ("include_stop_str_in_output", "stop_reason"),
        ("truncate_prompt_tokens", "shorten it"),
        ("logprob_token_ids", "send logprobs"),
        ("use_beam_search", "beam search"),
        ("length_penalty", "beam search"),
        ("functions", "send tools"),
        ("num_speculative_tokens", "speculative"),
    ],
)
def test_what_others_know_is_refused_with_the_cure(asking: httpx.Client, name: str, cure: str) -> None:
    reply = ask(asking, "completions", {name: 1})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == name
    assert cure in reply.json()["error"]["message"]
