"""Traces of an engine on a clock without noise, whose costs are no formula of the replay's: it finds their times."""

from random import Random

import pytest
from planted_clock import AFTER_END, BETWEEN, WAKE, Load, record, stream, takes

from outdraft.bench.replay.costs import Work
from outdraft.bench.replay.simulate import learn, replay, scheduling_of, simulate
from outdraft.bench.replay.summary import summarise
from outdraft.bench.replay.trace import read_trace
from outdraft.engine.scheduler.scheduler import SchedulerSettings

DECODING, PROMPTS, BOTH = (True, False), (False, True), (True, True)
SYSTEM = (3, 1, 4, 1, 5, 9, 2, 6) * 32


def recorded(tmp_path, loads, **settings):
    record(tmp_path / "trace.jsonl", loads, **settings)
    return read_trace(tmp_path / "trace.jsonl")


def again(trace):
    """The recording and the replay of it."""
    return summarise(trace.requests), replay(trace.requests, learn(trace), scheduling_of(trace))


def kinds(trace):
    return {one.work.kind for one in trace.passes}


CASES = {
    "prompts alone, with idle times": (stream(120, 60, (4, 400), (1, 1)), {}, {PROMPTS}),
    "a burst of prompts alone": (
        [Load(at=0.0, prompt=(1,) * (5 + 3 * i), tokens=1) for i in range(150)],
        {"max_num_seqs": 4},
        {PROMPTS},
    ),
    "decoding rows alone": (
        [Load(at=0.01 * i, prompt=(i % 11,), tokens=60) for i in range(20)],
        {"max_num_seqs": 8},
        {DECODING},
    ),
    "prompts beside decoding rows": (stream(240, 30, (4, 300), (10, 40)), {"max_num_seqs": 8}, {BOTH, DECODING}),
    "all three, with idle times": (stream(60, 12, (4, 300), (10, 40)), {"max_num_seqs": 8}, {BOTH, DECODING, PROMPTS}),
    "prefixes that are there": (
        stream(60, 30, (4, 60), (10, 40), system=SYSTEM),
        {"max_num_seqs": 8},
        {BOTH, DECODING},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_throughput_and_first_tokens_are_found_within_two_per_cent(tmp_path, name):
    loads, settings, shows = CASES[name]
    trace = recorded(tmp_path, loads, **settings)
    assert shows <= kinds(trace), "the case does not show what its name says"
    real, told = again(trace)
    assert told.tokens_per_second == pytest.approx(real.tokens_per_second, rel=0.02)
    assert told.first_median == pytest.approx(real.first_median, rel=0.02)
    assert told.end_median == pytest.approx(real.end_median, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "rows", "nodes", "context"),
    [(PROMPTS, 41, 1, 0), (PROMPTS, 301, 2, 0), (DECODING, 8, 8, 900), (BOTH, 60, 8, 900)],
)
def test_each_kind_of_pass_has_costs_of_its_own(tmp_path, kind, rows, nodes, context):
    """A pass over prompts alone costs more by the pass and less by the row than one beside others."""
    trace = recorded(tmp_path, stream(160, 16, (4, 400), (10, 40)), max_num_seqs=8)
    costs, decoding = learn(trace).costs, 2 * kind[0]
    work = Work(num_decoding=decoding, num_nodes=nodes, num_rows=rows, context=context)
    random = Random(0)
    drawn = [costs.seconds(work, random) for _ in range(50)]
    assert sum(drawn) / 50 == pytest.approx(takes(decoding, nodes, rows - nodes, context), rel=0.04)


def test_pauses_are_found_and_idle_times_are_none(tmp_path):
    pauses = learn(recorded(tmp_path, stream(60, 12, (4, 300), (10, 40)), max_num_seqs=8)).pauses
    found = (pauses.base, pauses.ended, pauses.wake, pauses.asked)
    assert found == pytest.approx((BETWEEN, AFTER_END, WAKE, 0.0), abs=2e-5)


def test_rows_that_are_there_are_not_read_again(tmp_path):
    trace = recorded(tmp_path, stream(60, 30, (4, 60), (10, 40), system=SYSTEM), max_num_seqs=8)
    copy = simulate(trace.requests, learn(trace), scheduling_of(trace))
    read = [sum(one.work.num_rows - one.work.num_nodes for one in run.passes) for run in (trace, copy)]
    assert sum(one.cached >= len(SYSTEM) for one in trace.requests) > 55
    assert read[0] == read[1] < sum(one.prompt for one in trace.requests) / 3


def test_requests_that_may_not_wait_are_refused_again(tmp_path):
    """Thirty come at once every second, for four seats and six places; with more places all are served."""
    loads = [Load(at=float(i // 30), prompt=(1, 2, 3 + i % 5), tokens=20) for i in range(120)]
    trace = recorded(tmp_path, loads, max_num_seqs=4, max_num_waiting=6)
    real, told = again(trace)
    assert real.num_refused == told.num_refused == 4 * (30 - 4 - 6)
    assert told.tokens_per_second == pytest.approx(real.tokens_per_second, rel=0.02)
    assert told.first_median == pytest.approx(real.first_median, rel=0.02)
    roomy = SchedulerSettings(max_num_seqs=4)
    served = simulate(trace.requests, learn(trace), roomy).requests
    assert [one.num_tokens for one in served] == [20] * 120


def test_requests_whose_time_is_over_end_at_the_same_moment(tmp_path):
    """Their answers want 0.3 seconds and have 0.1; with more time they write on, to what they were allowed."""
    loads = [Load(at=0.15 * i, prompt=(1, 2, 3), tokens=30 if i % 2 else 200, timeout=0.1) for i in range(30)]
    trace = recorded(tmp_path, loads, max_num_seqs=4)
    real, told = again(trace)
    assert real.num_late == told.num_late == 15
    assert told.tokens_per_second == pytest.approx(real.tokens_per_second, rel=0.02)
    assert told.end_median == pytest.approx(real.end_median, rel=0.02)
    for one in trace.requests:
        one.timeout = None
    served = simulate(trace.requests, learn(trace), scheduling_of(trace)).requests
    assert [one.num_tokens for one in served] == [30 if i % 2 else 200 for i in range(30)]


def test_callers_who_leave_leave_after_the_same_time(tmp_path):
    """Every third one goes after 50 ms; where all wait for one seat it goes before it is served at all."""
    loads = [Load(at=0.12 * i, prompt=(1, 2, 3) * 9, tokens=100, leaves=None if i % 3 else 0.05) for i in range(30)]
    trace = recorded(tmp_path, loads, max_num_seqs=4)
    real, told = again(trace)
    gone = [one for one in trace.requests if one.reason == "cancelled"]
    assert len(gone) == 10 and all(0 < one.num_tokens < 100 for one in gone)
    assert told.tokens_per_second == pytest.approx(real.tokens_per_second, rel=0.02)
    assert told.first_median == pytest.approx(real.first_median, rel=0.02)
    crowded = SchedulerSettings(max_num_seqs=1)
    served = simulate([one.sent(one.at / 4) for one in trace.requests], learn(trace), crowded).requests
    left = [one for one in served if one.reason == "cancelled"]
    assert len(left) == 10 and sum(not one.rounds for one in left) >= 8
    assert all(one.end - one.at == pytest.approx(0.05, abs=0.01) for one in left)


def test_a_request_that_left_before_its_first_token_is_replayed_too(tmp_path):
    """It took the time of those who came after it: a prompt of 2000 tokens was read for no client."""
    long = [one.prompt for one in stream(20, 1, (2000, 2000), (1, 1))]
    loads = [Load(at=0.2 * i, prompt=prompt, tokens=5, leaves=0.03) for i, prompt in enumerate(long)]
    loads += [Load(at=0.2 * i + 0.005, prompt=(1, 2), tokens=12) for i in range(20)]
    trace = recorded(tmp_path, loads, max_num_seqs=1)
    assert sum(one.reason == "cancelled" and not one.rounds for one in trace.requests) == 20
    real, told = again(trace)
    assert told.first_median == pytest.approx(real.first_median, rel=0.02)
