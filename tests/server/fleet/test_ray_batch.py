"""A batch on three nodes: a node is killed, or the whole run, and every request is answered once all the same."""

import json
import subprocess
import sys
import time
from collections import Counter

import pytest

from outdraft.server.fleet.batch.jobs import read_jobs
from tests.server.fleet.ray_cluster import cluster

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
ENGINE = {"model": "zoo:target", "drafter": "none"}
RUN = """
import sys
import ray
from outdraft.server.fleet.on_ray.batch import answer_batch
ray.init(address=sys.argv[1], log_to_driver=False)
answer_batch(sys.argv[2], sys.argv[3], {"model": "zoo:target", "drafter": "none"}, actors=2, batch_size=4, seed=7)
"""


def write(path, count, tokens):
    lines = [
        {"custom_id": f"job-{i}", "url": "/v1/completions", "body": {"prompt": f"On day {i} the", "max_tokens": tokens}}
        for i in range(count)
    ]
    lines[5]["body"]["temprature"] = 1
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def results(folder):
    return [json.loads(one) for one in (folder / "results.jsonl").read_text().splitlines()]


def texts(folder):
    return {one["custom_id"]: one["response"]["body"].get("choices", [{}])[0].get("text") for one in results(folder)}


def written(folder):
    """How often each id stands in the parts."""
    parts = [line for part in folder.glob("part-*.jsonl") for line in part.read_text().splitlines()]
    return Counter(json.loads(line)["custom_id"] for line in parts)


def wait_for_parts(folder, count, process=None):
    end = time.monotonic() + 90
    while len(list(folder.glob("part-*.jsonl"))) < count and time.monotonic() < end:
        assert process is None or process.poll() is None, "it was over before it could be killed"
        time.sleep(0.05)


def wait_for_quiet(folder):
    """Ray ends the actors of a run that is gone; until then they may write."""
    count, now = -1, 0
    while count < now:
        count = now
        time.sleep(3)
        now = len(list(folder.glob("part-*.jsonl")))


def test_a_run_that_was_killed_goes_on(tmp_path):
    from outdraft.server.fleet.on_ray.batch import answer_batch

    source, out = write(tmp_path / "in.jsonl", 120, 120), tmp_path / "out"
    with cluster(2) as made:
        run = [sys.executable, "-c", RUN, made.address, source, out]
        process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_parts(out, 3, process)
        process.kill()
        process.wait()
        wait_for_quiet(out)
        before = len(written(out))
        assert 0 < before < 120
        account = answer_batch(source, out, ENGINE, actors=2, batch_size=7, seed=7)
        whole = answer_batch(source, tmp_path / "whole", ENGINE, actors=2, batch_size=16, seed=7)
    print(account)
    assert (account.total, account.skipped) == (120, before)
    assert account.done + account.failed + account.skipped == 120 and whole.done == 119 and whole.failed == 1
    assert set(written(out).values()) == {1} and len(written(out)) == 120
    assert [one["custom_id"] for one in results(out)] == [job.custom_id for job in read_jobs(source)]
    assert texts(out) == texts(tmp_path / "whole")


def test_a_node_is_killed(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from outdraft.server.fleet.on_ray.batch import answer_batch

    source, out = write(tmp_path / "in.jsonl", 120, 120), tmp_path / "out"
    with cluster(2) as made, ThreadPoolExecutor(1) as thread:
        running = thread.submit(answer_batch, source, out, ENGINE, actors=2, batch_size=4, seed=7)
        wait_for_parts(out, 3)
        made.remove_node(made.worker_nodes.copy().pop(), allow_graceful=False)
        assert not running.done(), "it was over before a node was killed"
        account = running.result()
    assert (account.total, account.done, account.failed, account.skipped) == (120, 119, 1, 0)
    assert set(written(out).values()) == {1} and len(results(out)) == 120
