"""What the log tells of a request, and what it does not."""

import json
import logging
from typing import Any

import httpx
import pytest
from serving import serving

from outdraft import LLM

SECRET = "a secret prompt, a secret prompt, a"
BODY = {"prompt": SECRET, "max_tokens": 6, "temperature": 0, "ignore_eos": True}


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(one.getMessage()) for one in caplog.records if one.name == "outdraft.server.requests"]


def test_sizes_and_times_without_texts_and_keys(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outdraft.server")
    with serving(llm, api_keys=("the-key",)) as (address, _), httpx.Client(base_url=address) as client:
        client.headers["Authorization"] = "Bearer the-key"
        reply = client.post("/v1/completions", json=BODY).json()
        text, told = reply["choices"][0]["text"], reply["metrics"]["speculative_decoding"]
        client.post("/v1/completions", json=BODY | {"stream": True})
        client.post("/v1/completions", json=BODY | {"temprature": 1})
        client.post("/v1/completions", json=BODY, headers={"Authorization": "Bearer guessed-key"})
        client.get("/health")
    whole, streamed, refused, unknown = lines(caplog)
    assert (whole["status"], whole["completion_tokens"], whole["finish"], whole["whole"]) == (200, 6, ["length"], True)
    assert whole["prompt_tokens"] == len(llm.encode(SECRET))
    assert whole["drafted_by"] == told["num_spec_steps_by_method"]
    assert whole["acceptance_rate"] == (round(told["acceptance_rate"], 3) if whole["drafted_by"] else None)
    gain = told["estimated_speedup"]
    assert whole["estimated_speedup"] == (None if gain is None else round(gain, 2))
    assert 0 < streamed["first_seconds"] <= streamed["seconds"] and streamed["completion_tokens"] == 6
    assert refused["status"] == 400 and "completion_tokens" not in refused
    assert unknown["status"] == 401
    for word in (SECRET, text.strip(), "the-key", "guessed-key"):
        assert word and word not in caplog.text


def test_texts_are_shown_where_the_operator_wants_them(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outdraft.server")
    with serving(llm, log_requests=True) as (address, _):
        text = httpx.post(f"{address}/v1/completions", json=BODY).json()["choices"][0]["text"]
    (line,) = lines(caplog)
    assert line["prompts"] == [SECRET] and line["texts"] == [text]


def test_a_request_has_an_id(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outdraft.server")
    assert (
        client.post("/v1/completions", json=BODY, headers={"X-Request-Id": "mine-7"}).headers["x-request-id"]
        == "mine-7"
    )
    made = [client.get("/v1/models").headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    for odd in ("a b", 'x"}', "y" * 129, "\u00e4"):
        given = client.get("/nothing", headers={"X-Request-Id": odd.encode()}).headers["x-request-id"]
        assert given.startswith("req-")
    assert [one["id"] for one in lines(caplog)][:3] == ["mine-7", *made]
