"""`stream_interval`: chunks of as many tokens as were asked for, whatever a pass writes, and the same text."""

import json
from typing import Any

import httpx
import pytest
from serving import serving

from outdraft import LLM, SamplingParams
from outdraft.options.errors import RequestError

PROMPT = "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return"
ASKED: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 23, "temperature": 0, "logprobs": 1, "return_token_ids": True}


def chunks(client: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, reply.read()
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]
    return [choice for line in lines if line != "[DONE]" for choice in json.loads(line)["choices"]]


@pytest.mark.parametrize(("interval", "sizes"), [(1, [1] * 23), (10, [10, 10, 3]), (100, [23])])
def test_chunks_have_so_many_tokens(client: httpx.Client, llm: LLM, interval: int, sizes: list[int]) -> None:
    whole = llm.generate(PROMPT, SamplingParams(max_tokens=23, logprobs=1))
    assert max(whole.stats.accepted_lengths) > 1, "a pass must have written several tokens"
    made = chunks(client, {**ASKED, "stream_interval": interval})
    assert [len(one["token_ids"]) for one in made] == sizes
    assert "".join(one["text"] for one in made) == whole.text
    assert [token for one in made for token in one["token_ids"]] == list(whole.token_ids)
    assert [source for one in made for source in one["token_sources"]] == list(whole.sources)
    told = [value for one in made for value in one["logprobs"]["token_logprobs"]]
    assert whole.logprobs is not None and told == [one.logprob for one in whole.logprobs]
    assert [one["finish_reason"] for one in made] == [None] * (len(made) - 1) + ["length"]


def test_the_operator_chooses_where_the_request_does_not(llm: LLM) -> None:
    with serving(llm, stream_interval=1) as (address, _), httpx.Client(base_url=address, timeout=60) as client:
        assert {len(one["token_ids"]) for one in chunks(client, ASKED)} == {1}
        sizes = [len(one["token_ids"]) for one in chunks(client, {**ASKED, "stream_interval": 0})]
    assert max(sizes) > 1 and sum(sizes) == 23


@pytest.mark.parametrize("interval", [1, 4, 50])
def test_a_stop_string_is_never_shown_in_part(llm: LLM, interval: int) -> None:
    text = llm.generate(PROMPT, SamplingParams(max_tokens=23)).text
    params = SamplingParams(max_tokens=23, stop=(text[9:13],))
    pieces = list(llm.stream(PROMPT, params, stream_interval=interval))
    whole = llm.generate(PROMPT, params)
    assert "".join(piece.text for piece in pieces) == whole.text == text[: text.index(text[9:13])]
    assert (pieces[-1].finish_reason, pieces[-1].stop_reason) == ("stop", text[9:13])


def test_refusals(client: httpx.Client, llm: LLM) -> None:
    for more, says in (({"stream_interval": 2}, "needs stream"), ({"stream_interval": -1, "stream": True}, "-1")):
        reply = client.post("/v1/completions", json={**ASKED, **more})
        assert reply.status_code == 400 and says in reply.json()["error"]["message"]
        assert reply.json()["error"]["param"] == "stream_interval"
    for wrong in (-1, "two", None):
        with pytest.raises(RequestError, match="stream_interval"):
            next(llm.stream(PROMPT, stream_interval=wrong))  # type: ignore[arg-type]
