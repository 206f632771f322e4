"""Run the requests of a trace through the engine's own loop, with passes that only count, and a clock that they move.

    requests at their times -> Engine -> Scheduler -> passes that compute nothing: the clock moves by what each would
                                 |                    take, and its texts go on as they were recorded
                                 +-> a trace of its own, which is read as the recording is

So whatever the scheduler does in a replay it would do in the engine: it is the same code; and what is said of the
replay is said by the same rules as of the recording.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from outdraft.bench.replay.costs import LearnedCosts
from outdraft.bench.replay.engine import Machine, Replaying
from outdraft.bench.replay.pauses import Pauses, learn_pauses
from outdraft.bench.replay.summary import Summary, middle, summarise
from outdraft.bench.replay.trace import Trace, TracedRequest, read_lines
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.engine.trace import Tracer
from outdraft.options.errors import BusyError
from outdraft.options.params import SamplingParams

_RUNS = 5
_CONFIG = {"model": "simulated", "drafter": {"name": "as recorded"}}


def learn(trace: Trace) -> Machine:
    """The machine that a trace was recorded on. Raises `ConfigError` for a trace of hardly any passes."""
    setup = trace.setup
    return Machine(
        costs=LearnedCosts(trace.passes),
        pauses=learn_pauses(trace.pauses),
        mixes=setup["mixes"],
        slices=setup.get("slices", 1),
        num_pages=setup["capacity"],
    )


def scheduling_of(trace: Trace) -> SchedulerSettings:
    """The limits that held while it was recorded."""
    return SchedulerSettings(**{one.name: trace.setup[one.name] for one in fields(SchedulerSettings)})


def replay(requests: Seq[TracedRequest], machine: Machine, scheduling: SchedulerSettings) -> Summary:
    """Of a few runs whose noise is drawn anew, the middle of each number: who waits for whom hangs on little."""
    return middle([summarise(simulate(requests, machine, scheduling, seed=seed).requests) for seed in range(_RUNS)])


def simulate(requests: Seq[TracedRequest], machine: Machine, scheduling: SchedulerSettings, *, seed: int = 0) -> Trace:
    """The same requests, with the times that they have in the replay, by arrival. `seed`: of the machine's noise.

    Raises `RequestError` for memory in which one of them never fits.
    """
    engine, lines = Replaying(machine, scheduling, seed), list[dict[str, Any]]()
    engine.watch.add(Tracer(lines.append, engine, _CONFIG, 0.0))
    _run(engine, _as_served(requests), machine.pauses)
    trace = read_lines(lines)
    for one in trace.requests:
        one.id = engine.asked[one.id].id
    return trace


def _run(engine: Replaying, requests: Iterable[TracedRequest], pauses: Pauses) -> None:
    """Send every request at its time, and take back at its time who left."""
    waiting = sorted(requests, key=lambda one: one.at, reverse=True)
    leaving: list[tuple[float, Sequence]] = []
    num_ended = 0
    while waiting or engine.has_work:
        if engine.has_work:
            engine.now += pauses.base + pauses.ended * num_ended
        else:
            engine.now = max(engine.now, waiting[-1].at) + pauses.wake
        num_ended = 0
        while waiting and waiting[-1].at <= engine.now:
            one = waiting.pop()
            seq = engine.prepare(_request(one), asked_at=one.at)
            engine.asked[seq.id] = one
            with suppress(BusyError):  # too many wait: the trace has it
                engine.enqueue(seq)
                if one.patience is not None:
                    leaving.append((one.at + one.patience, seq))
            engine.now += pauses.asked
        for at, seq in leaving:
            if at <= engine.now and seq.finish_reason is None:
                engine.cancel(seq)
                num_ended += 1
        leaving = [(at, seq) for at, seq in leaving if seq.finish_reason is None]
        num_ended += sum(event.finish_reason is not None for event in engine.step())


def _as_served(requests: Seq[TracedRequest]) -> list[TracedRequest]:
    """A request that wrote nothing would write what the one before it wrote that ended by itself."""
    served: list[TracedRequest] = []
    rounds = next((one.rounds for one in requests if one.reason in ("stop", "length")), [])
    for one in sorted(requests, key=lambda one: one.at):
        if not one.rounds:
            one = replace(one, rounds=rounds)
        elif one.reason in ("stop", "length"):
            rounds = one.rounds
        served.append(one)
    return served


def _request(one: TracedRequest) -> Request:
    """It may write as much as it did; and as much as it was allowed to where its text was not over."""
    was_cut_off = one.reason == "timeout" or one.patience is not None
    num_tokens = one.most if was_cut_off and one.most is not None else one.num_tokens
    if one.reason == "refused" and one.most is not None:
        num_tokens = min(num_tokens, one.most)
    return Request(
        prompt_token_ids=(1,) * one.prompt,
        priority=one.priority,
        timeout=one.timeout,
        params=SamplingParams(max_tokens=max(1, num_tokens), ignore_eos=True),
    )
