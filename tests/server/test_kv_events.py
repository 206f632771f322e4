"""What the cache holds, as a router reads it: enough to know, without asking again, where a prompt is warm."""

import asyncio
import json

import httpx
import pytest

from outdraft import LLM
from outdraft.options.errors import CapabilityError
from outdraft.server.app import make_app
from outdraft.server.fleet.affinity import Affinity
from outdraft.server.fleet.route_key import route_key
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings

ONE, TWO = list(range(100, 180)), list(range(200, 280))


def served(llm, **settings):
    app = make_app(Service(llm, ServerSettings(served_model_name=("target",), **settings)))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here")


def events(reply):
    return [json.loads(line) for line in reply.text.splitlines()]


def follow(affinity, name, told):
    """What a router does with a reply; returns the id to ask from next."""
    for one in told:
        if one["type"] == "stored":
            affinity.stored(name, [int(one["block_hash"], 16)])
        elif one["type"] == "removed":
            affinity.removed(name, [int(one["block_hash"], 16)])
    return told[-1]["event_id"]


@pytest.fixture
def llm():
    with LLM(
        "zoo:target", drafter="none", enable_prefix_caching=True, kv_cache_memory="1MiB", max_model_len=128
    ) as made:
        yield made


def test_a_router_knows_where_a_prompt_is_warm(llm):
    async def run():
        affinity = Affinity()
        async with served(llm, kv_events=True) as client:
            await client.post("/v1/completions", json={"prompt": ONE, "max_tokens": 2})
            last = follow(affinity, "here", events(await client.get("/kv_events")))
            key = route_key({"prompt": ONE})
            assert affinity.num_held(key, "here") == len(key.pages) == 5
            assert affinity.num_held(route_key({"prompt": TWO}), "here") == 0
            assert events(await client.get(f"/kv_events?since={last}")) == []
            later = asyncio.create_task(client.get(f"/kv_events?since={last}&wait=20"))
            await client.post("/v1/completions", json={"prompt": TWO, "max_tokens": 2, "cache_salt": "tenant"})
            told = events(await later)
            assert told[0]["event_id"] == last + 1 and told[0]["type"] == "stored"
            follow(affinity, "here", events(await client.get(f"/kv_events?since={last}")))
            assert affinity.num_held(route_key({"prompt": TWO, "cache_salt": "tenant"}), "here") == 5
            assert affinity.num_held(route_key({"prompt": TWO}), "here") == 0, "salts are kept apart"

    asyncio.run(run())


def test_what_is_evicted_is_published(llm):
    """The pool is smaller than the prompts: what a router believes is what a fresh one reads."""

    async def run():
        affinity, fresh, last = Affinity(), Affinity(), 0
        async with served(llm, kv_events=True) as client:
            for start in range(0, 240, 20):
                await client.post("/v1/completions", json={"prompt": [start + i for i in range(100)], "max_tokens": 1})
                told = events(await client.get(f"/kv_events?since={last}"))
                last = follow(affinity, "here", told)
            now = events(await client.get("/kv_events"))
            assert now[0]["type"] == "cleared"
            follow(fresh, "here", now)
            assert any(one["type"] == "removed" for one in events(await client.get("/kv_events?since=0")))
            keys = [route_key({"prompt": [start + i for i in range(100)]}) for start in range(0, 240, 20)]
            held = [affinity.num_held(key, "here") for key in keys]
            assert held == [fresh.num_held(key, "here") for key in keys]
            assert held[0] == 0 and held[-1] == 6

    asyncio.run(run())


def test_a_client_away_too_long_gets_everything(llm):
    async def run():
        async with served(llm, kv_events=True) as client:
            await client.post("/v1/completions", json={"prompt": ONE, "max_tokens": 1})
            all_of_it = events(await client.get("/kv_events"))
            assert [one["type"] for one in all_of_it] == ["cleared", *["stored"] * 5]
            assert events(await client.get("/kv_events?since=999")) == all_of_it
            parents = [one["parent_block_hash"] for one in all_of_it[1:]]
            assert parents == ["0" * 16, *(one["block_hash"] for one in all_of_it[1:-1])]

    asyncio.run(run())


def test_events_are_sent_only_where_turned_on_and_behind_the_key(llm):
    async def run():
        async with served(llm) as client:
            reply = await client.get("/kv_events")
            assert reply.status_code == 404 and "--kv-events" in reply.json()["error"]["message"]
        async with served(llm, kv_events=True, api_keys=("secret",)) as client:
            assert (await client.get("/kv_events")).status_code == 401
            reply = await client.get("/kv_events", headers={"Authorization": "Bearer secret"})
            assert reply.status_code == 200

    asyncio.run(run())


def test_an_engine_that_shares_nothing_refuses_at_the_start():
    with LLM("zoo:target", drafter="none") as llm, pytest.raises(CapabilityError, match="prefix caching"):
        Service(llm, ServerSettings(served_model_name=("target",), kv_events=True))


def test_an_engine_whose_pages_go_with_its_weights_refuses_at_the_start():
    words = {"drafter": "none", "enable_prefix_caching": True, "precision": "elastic"}
    with LLM("zoo:target", **words) as llm, pytest.raises(CapabilityError, match="precision='elastic'"):
        Service(llm, ServerSettings(served_model_name=("target",), kv_events=True))


def test_a_router_that_waits_does_not_hold_the_end(llm):
    async def run():
        service = Service(llm, ServerSettings(served_model_name=("target",), kv_events=True))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(make_app(service)), base_url="http://here"
        ) as client:
            last = events(await client.get("/kv_events"))[-1]["event_id"]
            waits = asyncio.create_task(client.get(f"/kv_events?since={last}&wait=60"))
            await asyncio.sleep(0.1)
            await service.drain()
            assert events(await asyncio.wait_for(waits, 10)) == []

    asyncio.run(run())
