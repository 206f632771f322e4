"""Traces: what is recorded, and that a replay does what the engine did."""

from random import Random

import numpy as np
import pytest

from outdraft import LLM, SamplingParams, record_trace
from outdraft.bench.replay.costs import Costs, learn_costs
from outdraft.bench.replay.simulate import simulate
from outdraft.bench.replay.summary import summarise
from outdraft.bench.replay.trace import Asked, Pass, read_trace
from outdraft.core.errors import ConfigError
from outdraft.engine.scheduler.settings import SchedulerSettings


def made(rows=2e-4, sequence=1e-3, base=0.01):
    """Costs of a machine that is known: linear, quiet."""
    knots = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048], dtype=float)
    return Costs(weights=np.concatenate([base + rows * knots, [sequence, 0.0]]), noise=np.ones(1), pause=0.0)


def requests(count, *, every=0.05, prompt=60, tokens=40):
    rng = Random(3)
    return [
        Asked(id=i, at=every * i, prompt=rng.randrange(5, 2 * prompt), rounds=[(5, 3)] * (tokens // 3))
        for i in range(count)
    ]


def run(asked, costs=None, num_pages=None, **settings):
    return simulate(asked, costs or made(), SchedulerSettings(**settings), mixes=True, num_pages=num_pages)


def test_each_request_writes_what_it_wrote():
    asked = requests(20)
    found = run(asked)
    assert [one.num_tokens for one in found] == [one.num_tokens for one in asked]
    assert all(one.first > one.at and one.end >= one.first for one in found)


def test_fewer_seats_and_less_memory_take_longer():
    asked = requests(30, every=0.01)
    ends = [summarise(run(asked, max_num_seqs=seats)).end_median for seats in (1, 4, 16)]
    assert ends[0] > 1.5 * ends[1] > 1.5 * ends[2]
    assert summarise(run(asked, num_pages=14)).end_median > 1.5 * summarise(run(asked, num_pages=400)).end_median


def test_a_full_pool_serves_all_in_the_end():
    found = run(requests(30, every=0.0), num_pages=14)
    assert all(one.reason == "length" for one in found)


def test_costs_are_found_again():
    """Passes of a machine that is known, with noise of a tenth: what they take is learned to a few per cent."""
    rng, truth = Random(1), made()
    passes = []
    for _ in range(800):
        decoding, rows = rng.randrange(1, 20), int(2 ** rng.uniform(0, 9))
        seconds = truth.seconds(decoding, rows, 0) * rng.uniform(0.9, 1.1)
        passes.append(Pass(seconds=seconds, num_decoding=decoding, num_rows=rows, context=0, before=1e-4))
    costs = learn_costs(passes)
    for decoding, rows in ((1, 1), (4, 20), (16, 200)):
        assert costs.seconds(decoding, rows, 0) == pytest.approx(truth.seconds(decoding, rows, 0), rel=0.08)
    assert costs.pause == pytest.approx(1e-4) and 0.85 < costs.noise.min() < 0.95 < 1.05 < costs.noise.max()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A trace of real requests, and what they wrote."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    llm = LLM("zoo:target", drafter="ngram", max_num_seqs=4)
    params = [SamplingParams(max_tokens=20 + 5 * (i % 3), ignore_eos=True) for i in range(9)]
    with record_trace(llm, path):
        results = llm.generate([f"The {i}th door was open, and the {i}th door" for i in range(9)], params)
    return path, results


def test_a_trace_tells_requests_and_passes_and_no_text(recorded):
    path, results = recorded
    trace = read_trace(path)
    assert [one.prompt for one in trace.requests] == [len(one.prompt_token_ids) for one in results]
    assert [one.num_tokens for one in trace.requests] == [len(one.token_ids) for one in results]
    assert all(one.reason == "length" and one.at <= one.first <= one.end for one in trace.requests)
    num_passes = [one.stats.num_steps + one.stats.num_prompt_steps for one in results]
    assert max(num_passes) <= len(trace.passes) and trace.setup["max_num_seqs"] == 4
    assert "door" not in path.read_text()


def test_only_one_recording_at_a_time(tmp_path):
    llm = LLM("zoo:target", drafter="none")
    again = record_trace(llm, tmp_path / "b.jsonl")
    with record_trace(llm, tmp_path / "a.jsonl"), pytest.raises(ConfigError, match="recorded already"), again:
        pass
    with pytest.raises(ConfigError, match="cannot be written"), record_trace(llm, tmp_path / "none" / "a.jsonl"):
        pass
