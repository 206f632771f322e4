"""Three nodes on one machine: one of them is killed in the middle of streams, and no answer is lost or changed."""

import asyncio
import json

import httpx
import pytest

from outdraft import LLM, SamplingParams
from outdraft.server.fleet.on_ray.settings import ReplicaSettings
from outdraft.server.settings import ServerSettings
from tests.server.fleet.ray_cluster import cluster, free_port

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
ENGINE = {"model": "zoo:target", "drafter": "ngram", "num_speculative_tokens": 4}
PROMPTS = [f"On day {i} of the voyage the captain" for i in range(16)]
MAX_TOKENS = 300


def body(i, **more):
    return {"prompt": PROMPTS[i], "max_tokens": MAX_TOKENS, "seed": i, "temperature": 0.8, "ignore_eos": True, **more}


@pytest.fixture(scope="module")
def expected():
    with LLM("zoo:target", drafter="none") as llm:
        params = [
            SamplingParams(max_tokens=MAX_TOKENS, temperature=0.8, seed=i, ignore_eos=True) for i in range(len(PROMPTS))
        ]
        return [one.text for one in llm.generate(PROMPTS, params)]


@pytest.fixture(scope="module")
def three_nodes():
    from ray import serve

    from outdraft.server.fleet.on_ray.application import make_application

    with cluster(2) as made:
        port = free_port()
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        scale = ReplicaSettings(replicas=2, health_check_period=1.0)
        serve.run(make_application(ENGINE, ServerSettings(served_model_name=("target",)), scale), name="outdraft")
        yield made, f"http://127.0.0.1:{port}"
        serve.shutdown()


async def streamed(client, i, has_begun):
    """What a client of a stream sees: text, ids, ends, and whether anything went wrong."""
    text, finish, ids, done = "", [], set(), 0
    async with client.stream("POST", "/v1/completions", json=body(i, stream=True)) as reply:
        assert reply.status_code == 200
        async for line in reply.aiter_lines():
            if line == "data: [DONE]":
                done += 1
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                assert "error" not in event, event
                choice = event["choices"][0]
                text += choice["text"]
                ids.add(event["id"])
                finish += [choice["finish_reason"]] if choice["finish_reason"] else []
                has_begun.set()
    assert (len(ids), finish, done) == (1, ["length"], 1)
    return text


async def whole(client, i):
    reply = await client.post("/v1/completions", json=body(i))
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


def test_a_node_is_killed_and_every_request_is_answered_once(three_nodes, expected):
    made, address = three_nodes

    async def run():
        async with httpx.AsyncClient(base_url=address, timeout=120) as client:
            begun = [asyncio.Event() for _ in range(8)]
            streams = [asyncio.create_task(streamed(client, i, begun[i])) for i in range(8)]
            others = [asyncio.create_task(whole(client, i)) for i in range(8, 16)]
            await asyncio.gather(*(one.wait() for one in begun))
            assert not any(one.done() for one in streams), "the kill comes too late to cut anything"
            await asyncio.to_thread(made.remove_node, made.worker_nodes.copy().pop(), allow_graceful=False)
            return await asyncio.gather(*streams, *others), (await client.get("/front")).json()

    texts, told = asyncio.run(run())
    assert texts == expected
    assert told["streams_resumed"] >= 1 and told["replicas_lost"] >= told["streams_resumed"], told
    print(told)
