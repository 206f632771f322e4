"""`speculative` in a request's body: used, reported in the reply, or refused by name."""

from typing import Any

import httpx
import pytest

from outdraft import LLM, SamplingParams

BODY = {"prompt": "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return", "max_tokens": 16, "temperature": 0}


def ask(client: httpx.Client, speculative: Any, **more: Any) -> dict[str, Any]:
    reply = client.post("/v1/completions", json={**BODY, "speculative": speculative, **more})
    assert reply.status_code == 200, reply.text
    told: dict[str, Any] = reply.json()
    return told


@pytest.fixture(scope="module")
def plain(llm: LLM) -> str:
    return llm.generate(BODY["prompt"], SamplingParams(max_tokens=16), num_speculative_tokens=0).text


def test_plain_decoding(client: httpx.Client, plain: str) -> None:
    told = ask(client, False)
    assert told["choices"][0]["text"] == plain
    assert told["speculative"]["num_speculative_tokens"] == 0
    figures = told["metrics"]["speculative_decoding"]
    assert (figures["num_spec_steps"], figures["acceptance_histogram"], figures["num_spec_tokens"]) == (0, [0], 0)


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        (None, 4),
        ({"method": "ngram"}, 4),
        ({"num_speculative_tokens": 2}, 2),
        ({"method": "ngram", "num_speculative_tokens": 7, "policy": "fixed", "verifier": "rejection"}, 7),
    ],
)
def test_settings_in_force_and_statistics(client: httpx.Client, plain: str, asked: Any, most: int) -> None:
    told = ask(client, asked)
    assert told["choices"][0]["text"] == plain
    assert told["speculative"] == {
        "method": "ngram",
        "num_speculative_tokens": most,
        "verifier": (asked or {}).get("verifier", "auto"),
        "policy": "fixed",
        "methods": ["ngram"],
    }
    figures = told["metrics"]["speculative_decoding"]
    histogram = figures["acceptance_histogram"]
    assert len(histogram) == most + 1 == figures["num_spec_tokens"] + 1
    assert all(type(count) is int for count in histogram)
    assert sum(histogram) == figures["num_spec_steps"] > 0
    assert sum(i * count for i, count in enumerate(histogram)) == figures["num_accepted_draft_tokens"]
    assert figures["num_spec_steps_by_method"] == {"ngram": figures["num_spec_steps"]}
    assert max(figures["per_step_drafted"]) <= most


def test_streams_and_chats_tell_them_too(client: httpx.Client) -> None:
    chat = client.post(
        "/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "speculative": False},
    ).json()
    assert chat["speculative"]["num_speculative_tokens"] == 0
    body = {**BODY, "stream": True, "stream_options": {"include_usage": True}, "speculative": {"method": "ngram"}}
    lines = client.post("/v1/completions", json=body).text.split("\n\n")
    assert '"methods":["ngram"]' in lines[-3] and '"num_spec_tokens":4' in lines[-3]


@pytest.mark.parametrize(
    ("asked", "told", "param"),
    [
        ({"method": "eagle3"}, "method 'eagle3' is not held here: held are ngram", "speculative.method"),
        ({"method": "none"}, "speculative=false is plain decoding", "speculative.method"),
        ({"verifier": "leniency"}, "verifier 'leniency' may change the distribution", "speculative.verifier"),
        ({"verifier": "os:system"}, "verifier 'os:system' is not known", "speculative.verifier"),
        ({"policy": "auto"}, "policy 'auto' is not held here: held are fixed", "speculative.policy"),
        ({"metod": "ngram"}, "there is no field 'metod' in speculative", "speculative.metod"),
        ({"num_speculative_tokens": -1}, "greater than or equal to 0", "speculative.num_speculative_tokens"),
        ({"num_speculative_tokens": "3"}, "valid integer", "speculative.num_speculative_tokens"),
    ],
)
def test_refused_by_name(client: httpx.Client, asked: Any, told: str, param: str) -> None:
    reply = client.post("/v1/completions", json={**BODY, "speculative": asked})
    assert reply.status_code == 400, reply.text
    assert told in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"] == param


def test_a_rule_that_is_not_for_this_request(client: httpx.Client) -> None:
    reply = client.post("/v1/completions", json={**BODY, "temperature": 1, "speculative": {"verifier": "greedy"}})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "speculative.verifier"


def test_models_lists_the_methods(client: httpx.Client) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert model["speculative"]["methods"] == ["ngram"]


def test_usage_counts_accepted_tokens_that_are_in_the_text(client: httpx.Client) -> None:
    """A stop string cuts a run that the rule has accepted; the statistics are of the rule."""
    body = {
        "prompt": "one two three four five six seven eight. " * 6 + "one",
        "max_tokens": 40,
        "temperature": 0,
        "stop": [". two. two"],
        "return_token_ids": True,
        "speculative": {"num_speculative_tokens": 8},
    }
    for stop in (". two. two", " two", " three", " four", " five", " six"):
        reply = client.post("/v1/completions", json={**body, "stop": [stop]}).json()
        told = reply["usage"]["completion_tokens_details"]
        rule = reply["metrics"]["speculative_decoding"]
        assert told["accepted_prediction_tokens"] == reply["choices"][0]["token_sources"].count("accepted")
        both = told["accepted_prediction_tokens"] + told["rejected_prediction_tokens"]
        assert both == rule["num_draft_tokens"]
