"""Traces: what is recorded, and that a replay does what the engine did."""

import json
import threading
from random import Random

import pytest
from drafters.drafting import sequence

from outdraft import LLM, SamplingParams, record_trace
from outdraft.bench.replay.costs import LearnedCosts, RecordedPass, Work, work_of
from outdraft.bench.replay.engine import Chunk, Machine, Replaying
from outdraft.bench.replay.pauses import Pause, Pauses, learn_pauses
from outdraft.bench.replay.simulate import simulate
from outdraft.bench.replay.summary import Summary, middle, summarise
from outdraft.bench.replay.trace import TracedRequest, read_lines, read_trace
from outdraft.core.events import StepEvent
from outdraft.core.request import Request
from outdraft.decode.step import decide
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.engine.trace import Tracer
from outdraft.options.errors import ConfigError


class Known:
    """LearnedCosts of a machine that is known: linear, quiet."""

    def seconds(self, work, random):
        return 0.01 + 2e-4 * work.num_rows + 1e-3 * work.num_decoding


def requests(count, *, every=0.05, prompt=60, tokens=40):
    rng = Random(3)
    return [
        TracedRequest(id=i, at=every * i, prompt=rng.randrange(5, 2 * prompt), rounds=[(5, 3)] * (tokens // 3))
        for i in range(count)
    ]


def run(asked, num_pages=None, **settings):
    machine = Machine(costs=Known(), pauses=Pauses(), num_pages=num_pages)
    return simulate(asked, machine, SchedulerSettings(**settings)).requests


def test_each_request_writes_what_it_wrote():
    asked = requests(20)
    found = run(asked)
    assert [(one.id, one.num_tokens) for one in found] == [(one.id, one.num_tokens) for one in asked]
    assert all(one.first > one.at and one.end >= one.first for one in found)


def test_fewer_seats_and_less_memory_take_longer():
    asked = requests(30, every=0.01)
    ends = [summarise(run(asked, max_num_seqs=seats)).end_median for seats in (1, 4, 16)]
    assert ends[0] > 1.5 * ends[1] > 1.5 * ends[2]
    assert summarise(run(asked, num_pages=14)).end_median > 1.5 * summarise(run(asked, num_pages=400)).end_median


def test_a_full_pool_serves_all_in_the_end():
    found = run(requests(30, every=0.0), num_pages=14)
    assert all(one.reason == "length" for one in found)


def test_a_request_sent_at_another_time_is_as_patient():
    one = TracedRequest(id=0, at=2.0, prompt=1, end=5.0, reason="cancelled")
    assert one.sent(1.0).patience == one.patience == 3.0
    assert TracedRequest(id=0, at=2.0, prompt=1, end=5.0, reason="stop").patience is None


def test_costs_are_found_again_through_noise():
    """Passes of a machine that is known, with noise of a tenth: what they take is learned to a few per cent."""
    rng, truth, passes = Random(1), Known(), []
    for _ in range(800):
        decoding, rows = rng.randrange(1, 20), int(2 ** rng.uniform(0, 9))
        work = Work(num_decoding=decoding, num_nodes=min(rows, decoding), num_rows=rows, context=0)
        passes.append(RecordedPass(work=work, seconds=truth.seconds(work, rng) * rng.uniform(0.9, 1.1)))
    costs = LearnedCosts(passes)
    for decoding, rows in ((1, 1), (4, 20), (16, 200)):
        work = Work(num_decoding=decoding, num_nodes=min(rows, decoding), num_rows=rows, context=0)
        drawn = [costs.seconds(work, rng) for _ in range(400)]
        assert sum(drawn) / 400 == pytest.approx(truth.seconds(work, rng), rel=0.05)
        assert max(drawn) > 1.05 * min(drawn), "the noise is gone"


def test_a_pause_of_the_machine_is_added_and_does_not_grow_with_the_pass():
    """Every twentieth pass of a row stops for 50 ms; a pass of 400 rows, of which few were seen, may stop as long."""
    few, many = (Work(num_decoding=1, num_nodes=1, num_rows=rows, context=0) for rows in (1, 400))
    passes = [RecordedPass(work=few, seconds=0.001 + 0.05 * (i % 20 == 0)) for i in range(200)]
    passes += [RecordedPass(work=many, seconds=0.08)] * 2
    costs, random = LearnedCosts(passes), Random(0)
    assert max(costs.seconds(many, random) for _ in range(100)) < 0.2
    drawn = [costs.seconds(few, random) for _ in range(4000)]
    assert sum(drawn) / 4000 == pytest.approx(0.0035, rel=0.15)


def test_too_few_passes_are_refused():
    one = RecordedPass(work=Work(num_decoding=1, num_nodes=1, num_rows=1, context=0), seconds=0.1)
    with pytest.raises(ConfigError, match="has 19 passes of the model, and a replay needs 20: record more requests"):
        LearnedCosts([one] * 19)


def test_pauses_tell_who_came_and_who_ended():
    shown = [(0.001, 0, 0), (0.003, 1, 0), (0.002, 0, 1), (0.006, 2, 1), (0.001, 0, 0)]
    pauses = [Pause(seconds=s, is_awake=True, num_asked=a, num_ended=e) for s, a, e in shown]
    pauses.append(Pause(seconds=0.5, is_awake=False, num_asked=1, num_ended=0))
    found = learn_pauses(pauses)
    assert (found.base, found.asked, found.ended, found.wake) == pytest.approx((0.001, 0.002, 0.001, 0.5))
    assert learn_pauses([]) == Pauses()
    shown = ((0.1, 0, 0), (0.2, 1, 0), (0.1, 1, 1))
    less = [Pause(seconds=s, is_awake=True, num_asked=a, num_ended=e) for s, a, e in shown]
    assert learn_pauses(less).ended == 0.0 < learn_pauses(less).asked


def test_the_middle_of_runs_without_a_written_token_has_no_times():
    nothing = summarise([TracedRequest(id=0, at=0.0, prompt=1, end=1.0, reason="timeout")])
    assert (nothing.tokens_per_second, nothing.first_median, nothing.num_late) == (0.0, None, 1)
    some = Summary(
        tokens_per_second=5.0, first_median=1.0, first_p99=1.0, end_median=2.0, end_p99=2.0, num_refused=0, num_late=0
    )
    assert middle([nothing, some, some]) == some and middle([nothing, nothing]) == nothing


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
    assert [one.most for one in trace.requests] == [20 + 5 * (i % 3) for i in range(9)]


def test_a_request_arrives_when_it_is_sent_and_not_when_a_pass_is_over(tmp_path):
    """It is sent while a pass is under way; its wait for the pass's end is a part of its wait for the first token."""
    llm = LLM("zoo:target", drafter="none")
    target, began, sent = llm.engine.parts.target, threading.Event(), threading.Event()
    forward = target.forward

    def slow(packed, taps=()):
        began.set()
        assert sent.wait(20)
        return forward(packed, taps)

    params = SamplingParams(max_tokens=2, ignore_eos=True)
    with record_trace(llm, tmp_path / "t.jsonl"):
        target.forward = slow
        first = threading.Thread(target=lambda: llm.generate("One door", params))
        first.start()
        assert began.wait(20)
        second = llm._thread.submit([Request(prompt_token_ids=(5, 6, 7), params=params)])
        sent.set()
        first.join()
        for call in second:
            while not call.finished:
                call.wait()
    late = read_trace(tmp_path / "t.jsonl").requests[1]
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    one = next(line for line in lines if "rows" in line)
    assert one["at"] - one["seconds"] < late.at < one["at"]


def test_refused_and_unfinished_requests_are_in_the_trace(tmp_path):
    llm = LLM("zoo:target", drafter="none", max_num_seqs=1, max_num_waiting=1)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with record_trace(llm, tmp_path / "t.jsonl"):
        llm.generate(["a", "b", "c", "d"], params)
    trace = read_trace(tmp_path / "t.jsonl")
    assert [one.reason for one in trace.requests] == ["length", "length", "refused", "refused"]
    assert all(one.end >= one.at and not one.rounds for one in trace.requests[2:])
    text = (tmp_path / "t.jsonl").read_text().splitlines()
    (tmp_path / "cut.jsonl").write_text("\n".join(line for line in text if '"ends"' not in line))
    cut = read_trace(tmp_path / "cut.jsonl").requests
    assert {one.reason for one in cut} == {"unfinished"} and all(one.patience is not None for one in cut)


def test_only_one_recording_at_a_time(tmp_path):
    llm = LLM("zoo:target", drafter="none")
    again = record_trace(llm, tmp_path / "b.jsonl")
    with record_trace(llm, tmp_path / "a.jsonl"), pytest.raises(ConfigError, match="recorded already"), again:
        pass
    with pytest.raises(ConfigError, match="cannot be written"), record_trace(llm, tmp_path / "none" / "a.jsonl"):
        pass


def test_time_in_which_a_slice_ran_is_no_pause():
    """Of a prompt's pass that stops between layers; it has its own line, with all of its seconds, when it is over."""
    header = {"outdraft_trace": 1}
    ask = {"at": 0.0, "asks": 7, "prompt": 90, "most": 4, "priority": 0, "timeout": None}
    rounds = [{"at": at, "seconds": 0.1, "rows": [[1, 0, 1, 1, 40]]} for at in (0.1, 0.3, 0.5)]
    chunk = {"at": 0.4, "seconds": 0.19, "rows": [[7, 89, 1, 1, 0]]}
    told = [header, ask, rounds[0], {"at": 0.2, "slice": 0.1}, rounds[1], chunk, rounds[2]]
    trace = read_lines(told)
    assert [one.seconds for one in trace.passes] == [0.1, 0.1, 0.19, 0.1]
    assert [round(one.seconds, 6) for one in trace.pauses] == [0.0] * 4


def test_a_trace_tells_slices_and_the_seconds_of_all_of_them():
    told = []
    llm = LLM("zoo:target", drafter="none")
    tracer = Tracer(told.append, llm.engine, llm.config, 0.0)
    seq = llm.engine.prepare(Request(prompt_token_ids=(1, 2, 3)))
    decisions = decide([seq], llm.engine.parts)
    tracer.asked(seq, 0.0)
    tracer.passed(decisions, [], 0.1, 0.1)
    tracer.passed(decisions, [StepEvent(seq_id=seq.id, num_certain=2)], 0.3, 0.05)
    assert told[2] == {"at": 0.1, "slice": 0.1} and told[3]["seconds"] == pytest.approx(0.15)


def test_a_chunk_in_slices_has_its_pages_until_it_is_dropped():
    machine = Machine(costs=Known(), pauses=Pauses(), slices=4, num_pages=8)
    engine = Replaying(machine, SchedulerSettings(), 1)
    seq = sequence([5] * 40)
    seq.num_cached = 0
    engine.running.append(seq)
    assert engine.pages.free == 8
    assert not engine._slice(seq.id, 3, [(39, 1, 0)]) and engine.pages.opened[seq.id] == Chunk(
        40, Known().seconds(work_of([(39, 1, 0)]), None), 1
    )
    assert (engine.pages.free, engine.pages.held(seq)) == (5, 3) and engine.now == pytest.approx(0.75 * 0.018)
    engine.pages.end(seq)
    assert engine.pages.free == 8


def test_a_recording_of_an_llm_that_is_closed_meanwhile_is_whole(tmp_path):
    path = tmp_path / "t.jsonl"
    with LLM("zoo:target", drafter="none") as llm, record_trace(llm, path):
        llm.generate("One door", SamplingParams(max_tokens=3))
        llm.close()
    assert [one.reason for one in read_trace(path).requests] == ["length"]
