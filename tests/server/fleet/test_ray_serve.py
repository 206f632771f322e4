"""`outdraft serve --ray` as a user runs it: it answers like `outdraft serve`, and SIGTERM lets what runs finish."""

import json
import os
import signal
import subprocess
import sys
import threading

import httpx
import pytest

from outdraft import LLM, SamplingParams
from tests.server.fleet.ray_cluster import free_port

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
BODY = {"prompt": "It was late when", "max_tokens": 400, "seed": 3, "temperature": 0.8, "ignore_eos": True}


def test_it_serves_and_drains():
    port = free_port()
    words = (
        "--model",
        "zoo:target",
        "--drafter",
        "ngram",
        "--num-speculative-tokens",
        "4",
        "--ray",
        "--replicas",
        "2",
        "--cpus-per-replica",
        "0.5",
        "--api-key",
        "secret",
        "--port",
        port,
    )
    asked = [sys.executable, "-m", "outdraft.cli.main", "serve", *map(str, words)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        try:
            assert any(f"http://127.0.0.1:{port}" in line for line in iter(process.stdout.readline, ""))
            threading.Thread(target=process.stdout.read, daemon=True).start()
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                assert client.get("/v1/models").status_code == 401
                client.headers["Authorization"] = "Bearer secret"
                text = ""
                with client.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as reply:
                    for line in reply.iter_lines():
                        if not line.startswith("data: {"):
                            continue
                        if not text:
                            process.send_signal(signal.SIGTERM)
                        text += json.loads(line[6:])["choices"][0]["text"]
            assert process.wait(60) == 0
        finally:
            process.kill()
    with LLM("zoo:target", drafter="none") as llm:
        settings = {name: value for name, value in BODY.items() if name != "prompt"}
        assert text == llm.generate(BODY["prompt"], SamplingParams(**settings)).text


def test_the_plain_deployment_answers_and_a_target_drafts_with_an_actor():
    """Both need a running Ray, which takes its time to start."""
    import ray
    from ray import serve

    from outdraft.server.fleet.on_ray.application import make_plain_application
    from outdraft.server.fleet.on_ray.drafter import start_draft_actor
    from outdraft.server.fleet.on_ray.settings import ReplicaSettings
    from outdraft.server.settings import ServerSettings

    port = free_port()
    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=4, _node_ip_address="127.0.0.1")
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        scale = ReplicaSettings(replicas=1, max_replicas=2)
        engine = {"model": "zoo:target", "drafter": "none"}
        serve.run(make_plain_application(engine, ServerSettings(served_model_name=("target",)), scale))
        reply = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json={**BODY, "max_tokens": 30}, timeout=60)
        params = SamplingParams(max_tokens=30, seed=3, temperature=0.8, ignore_eos=True)
        with LLM("zoo:target", drafter="none") as llm:
            wanted = llm.generate(BODY["prompt"], params)
            assert reply.json()["choices"][0]["text"] == wanted.text
            actor = start_draft_actor("drafts", {"model": "zoo:draft", "drafter": "none"})
            beside = llm.with_drafter("outdraft.server.fleet.on_ray.drafter:METHOD", num_speculative_tokens=4)
            result = beside.generate(BODY["prompt"], params)
            assert result.token_ids == wanted.token_ids and result.stats.num_accepted_tokens > 5
            print(result.stats.tau, ray.get(actor.num_opened.remote()), result.stats.num_steps)
            assert ray.get(actor.num_opened.remote()) < result.stats.num_steps
    finally:
        serve.shutdown()
        ray.shutdown()
