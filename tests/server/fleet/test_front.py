"""The front before two real engines: where a replica dies the other one answers, once and with the same text."""

import asyncio
import json
from dataclasses import replace

import httpx
import pytest

from outdraft.server.fleet.ask import Head
from outdraft.server.fleet.front import Front
from outdraft.server.settings import ServerSettings
from tests.server.fleet.fleets import PlannedFleet

SETTINGS = ServerSettings(served_model_name=("target",), max_body_bytes=4096)
BODY = {"seed": 7, "max_tokens": 16, "temperature": 0.8}
COMPLETION = ("/v1/completions", {**BODY, "prompt": "It was late when"})
SEVERAL = ("/v1/completions", {**BODY, "prompt": ["It was late when", "def main("], "n": 2, "max_tokens": 8})
CHAT = ("/v1/chat/completions", {**BODY, "messages": [{"role": "user", "content": "Tell me of the sea."}]})
TOKENS = ("/inference/v1/generate", {"token_ids": [298, 267], "sampling_params": {"max_tokens": 12, "seed": 3}})
USAGE = ("/v1/completions", {**COMPLETION[1], "stream_options": {"include_usage": True}, "logprobs": 2})
STREAMS = {"completion": COMPLETION, "several": SEVERAL, "chat": CHAT, "tokens": TOKENS, "usage": USAGE}


async def ask(fleet, path, body, method="POST"):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Front(fleet, SETTINGS)), base_url="http://x") as one:
        return await one.request(method, path, json=body)


def streamed(fleet, path, body):
    reply = asyncio.run(ask(fleet, path, {**body, "stream": True}))
    assert reply.status_code == 200, reply.text
    assert reply.text.endswith("data: [DONE]\n\n")
    events = [json.loads(one[6:]) for one in reply.text.split("\n\n") if one.startswith("data: {")]
    assert not any("error" in one for one in events), events[-1]
    return events


def told(events):
    """What a client puts together of a stream: for each text its characters, roles, ids, log probabilities and end."""
    texts, last = {}, None
    for one in events:
        for choice in one["choices"]:
            mine = texts.setdefault(choice["index"], {"text": "", "roles": [], "ids": [], "logprobs": [], "ends": []})
            delta = choice.get("delta", {})
            mine["text"] += choice.get("text", "") + (delta.get("content") or "")
            mine["roles"] += [delta["role"]] if "role" in delta else []
            mine["ids"] += choice.get("token_ids", [])
            mine["logprobs"] += (choice.get("logprobs") or {}).get("tokens", [])
            mine["ends"] += [choice["finish_reason"]] if choice["finish_reason"] else []
        if not one["choices"]:
            last = one["usage"]["completion_tokens"]
    return texts, last


@pytest.mark.parametrize("name", STREAMS)
def test_a_cut_stream_goes_on_elsewhere(apps, name):
    """Wherever it is cut, the client gets every character, token and role once, and one end for each text.

    All are cut behind the first event, and then the five in different places.
    """
    path, body = STREAMS[name]
    whole = streamed(PlannedFleet(apps[1:]), path, body)
    for cut in (1, *range(2 + [*STREAMS].index(name), 20, 6)):
        fleet = PlannedFleet(apps, lambda i, cut=cut: (cut, 2, None)[i])
        events = streamed(fleet, path, body)
        assert told(events) == told(whole), cut
        assert len({one.get("id") or one["request_id"] for one in events}) == 1
        assert len({one["created"] for one in events}) == 1
        assert not fleet.num_open
    assert any(b"resume_token_ids" in one.body for one in fleet.asks) or len(fleet.asks) == 1


def test_a_cut_stream_is_resumed_and_not_begun_again(apps):
    path, body = COMPLETION
    fleet = PlannedFleet(apps[1:], lambda i: (8, None)[i])
    streamed(fleet, path, body)
    (resumed,) = json.loads(fleet.asks[1].body)["resume_token_ids"]
    assert len(resumed) >= 5


def test_a_sampled_stream_without_a_seed_gets_one_and_goes_on_with_it(apps):
    fleet = PlannedFleet(apps, lambda i: (5, None)[i])
    events = streamed(fleet, "/v1/completions", {"prompt": "It was late when", "max_tokens": 12})
    first, second = (json.loads(one.body) for one in fleet.asks)
    assert first["seed"] == second["seed"] is not None
    again = streamed(
        PlannedFleet(apps),
        "/v1/completions",
        {**BODY, "prompt": "It was late when", "max_tokens": 12, "temperature": 1.0, "seed": first["seed"]},
    )
    assert told(again) == told(events)


def test_fields_that_the_client_did_not_ask_for_are_not_sent(apps):
    for path, body in (COMPLETION, CHAT):
        for event in streamed(PlannedFleet(apps), path, body):
            assert not {"token_ids", "token_sources", "prompt_token_ids"} & {*event, *event["choices"][0]}
        kept = streamed(PlannedFleet(apps), path, {**body, "return_token_ids": True})
        assert any(event["choices"][0].get("token_ids") for event in kept)


def test_log_probabilities_of_the_prompt_come_through(apps):
    """With a piece that has no text, because it ends within a character."""
    path, body = CHAT
    events = streamed(
        PlannedFleet(apps), path, {**body, "prompt_logprobs": 1, "forced_prefix": "é", "stream_interval": 1}
    )
    (only,) = [event for event in events if "prompt_logprobs" in event]
    assert only["choices"][0]["delta"] == {} and len(only["prompt_logprobs"]) > 1


def test_a_client_that_goes_on_itself_is_cut_again(apps):
    path, body = COMPLETION
    ids = told(streamed(PlannedFleet(apps), path, {**body, "return_token_ids": True}))[0][0]["ids"]
    body = {**body, "return_token_ids": True, "resume_token_ids": [ids[:5]]}
    assert told(streamed(PlannedFleet(apps, lambda i: (4, None)[i]), path, body))[0][0]["ids"] == ids
    assert told(streamed(PlannedFleet(apps, lambda i: (1, None)[i]), path, body))[0][0]["ids"] == ids


@pytest.mark.parametrize("name, wrong", [("tokens", {"sampling_params": "x"}), ("completion", {"resume_token_ids": 7})])
def test_a_malformed_stream_is_refused_as_the_replica_refuses_it(apps, name, wrong):
    path, body = STREAMS[name]
    reply = asyncio.run(ask(PlannedFleet(apps), path, {**body, **wrong, "stream": True}))
    assert reply.status_code == 400 and next(iter(wrong)) in reply.json()["error"]["message"]


@pytest.mark.parametrize("dies", [0, 1])
def test_a_whole_reply_is_asked_again(apps, dies):
    path, body = COMPLETION
    whole = asyncio.run(ask(PlannedFleet(apps), path, body)).json()
    fleet = PlannedFleet(apps, lambda i: (dies, 0, None)[i])
    reply = asyncio.run(ask(fleet, path, body))
    assert reply.status_code == 200 and len(fleet.asks) == 3
    assert reply.json()["choices"] == whole["choices"]
    assert reply.headers["content-type"] == "application/json" and reply.headers["x-request-id"]


def test_where_all_die_the_client_gets_an_error(apps):
    reply = asyncio.run(ask(PlannedFleet(apps, lambda i: 0), *COMPLETION))
    assert reply.status_code == 503 and reply.json()["error"]["code"] == "engine_lost"
    path, body = COMPLETION
    reply = asyncio.run(ask(PlannedFleet(apps, lambda i: 1), path, {**body, "stream": True}))
    assert '"code":"engine_lost"' in reply.text and reply.text.endswith("data: [DONE]\n\n")


def test_what_replicas_say_goes_through(apps):
    fleet = PlannedFleet(apps)
    assert asyncio.run(ask(fleet, "/v1/models", None, "GET")).json()["data"][0]["id"] == "target"
    reply = asyncio.run(ask(fleet, "/v1/completions", {"prompt": "x", "temprature": 1, "stream": True}))
    assert reply.status_code == 400 and "temprature" in reply.json()["error"]["message"]
    assert asyncio.run(ask(fleet, "/nowhere", None, "GET")).status_code == 404
    reply = asyncio.run(ask(fleet, "/v1/completions", {"prompt": "x" * 5000}))
    assert reply.status_code == 413 and "4096 bytes" in reply.json()["error"]["message"]
    assert not fleet.num_open


@pytest.mark.parametrize("path", ["/live", "/v1/models", "/nowhere", "/front"])
def test_a_head_is_that_of_the_whole_answer(apps, path):
    """With its length; what sends it leaves the body out."""
    heads = [asyncio.run(ask(PlannedFleet(apps), path, None, method)) for method in ("HEAD", "GET")]
    lengths = [one.headers["content-length"] for one in heads]
    assert lengths[0] == lengths[1] == str(len(heads[1].content)) and heads[0].status_code == heads[1].status_code


def test_it_counts_what_it_has_saved(apps):
    front = Front(PlannedFleet(apps, lambda i: (5, None, 0, None)[i]), SETTINGS)

    async def run():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://x") as client:
            path, body = COMPLETION
            await client.post(path, json={**body, "stream": True})
            await client.post(path, json=body)
            return (await client.get("/front")).json()

    assert asyncio.run(run()) == {"requests": 2, "replicas_lost": 2, "streams_resumed": 1}


def test_a_client_that_hangs_up_cancels_the_request(apps):
    """The stream of the replica is closed with the client's."""
    fleet = PlannedFleet(apps[1:])
    front = Front(fleet, SETTINGS)
    path, body = COMPLETION

    async def run():
        sent, leave = [], asyncio.Event()
        body_left = [json.dumps({**body, "stream": True, "max_tokens": 400}).encode()]

        async def receive():
            if body_left:
                return {"type": "http.request", "body": body_left.pop(), "more_body": False}
            await leave.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if len(sent) == 4:
                leave.set()

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "client": None,
            "headers": [(b"content-type", b"application/json")],
        }
        await asyncio.wait_for(front(scope, receive, send), 20)
        return sent

    sent = asyncio.run(run())
    assert len(sent) < 100 and not fleet.num_open


class SlowFleet:
    """Answers once it may."""

    def __init__(self):
        self.go = asyncio.Event()

    async def send(self, ask, key):
        yield Head(200, ((b"content-type", b"application/json"),))
        await self.go.wait()
        yield b'{"whole": true}'


def test_a_front_that_drains_lets_requests_finish_takes_none_and_ends_the_late():
    async def main(drain_timeout):
        fleet = SlowFleet()
        front = Front(fleet, replace(SETTINGS, drain_timeout=drain_timeout))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://x") as client:
            running = asyncio.create_task(client.post("/v1/completions", json={}))
            while not front._open:
                await asyncio.sleep(0)
            draining = asyncio.create_task(front.drain())
            await asyncio.sleep(0.05)
            refused = [await client.post("/v1/completions", json={}), await client.get("/ready")]
            assert [one.status_code for one in refused] == [503, 503] and refused[0].headers["retry-after"] == "5"
            is_late = drain_timeout < 0.05
            assert draining.done() == is_late == running.done(), "it waits as long as it may"
            fleet.go.set()
            assert (await client.get("/live")).status_code == 200
            if is_late:
                assert running.cancelled()
            else:
                assert (await running).json() == {"whole": True}
            await draining
            await front.drain()

    asyncio.run(main(30.0))
    asyncio.run(main(0.01))
