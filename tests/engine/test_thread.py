"""The engine's thread: callers from threads and coroutines, who may leave at any moment, and a thread that ends."""

import asyncio
import gc
import random
import signal
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.codecs.stops import StopTable
from outdraft.core.request import Request
from outdraft.engine.assembly.variant import network_of
from outdraft.engine.callers.call import Call
from outdraft.engine.callers.prompts import PromptReader
from outdraft.engine.callers.worker import Ask
from outdraft.options.errors import CapabilityError, DecodingError, NumericsError, RequestError

GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
LONG = SamplingParams(max_tokens=400, ignore_eos=True)
PROMPTS = ["abcabcabc", "xyz", "the cat sat", "q"]


@pytest.fixture(scope="module")
def llm(model_dir) -> LLM:
    return LLM(model_dir, dtype="float32", drafter="ngram", num_speculative_tokens=3)


def within(seconds, work):
    """What `work` returns; a failure, and not a hang, where it does not come back."""
    done = Future()

    def run():
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


def is_empty(llm) -> bool:
    """Asked behind everything that has been said before."""
    return llm._thread.ask(lambda engine: not engine.has_work and not engine.running)


def test_threads_get_their_own_texts(llm):
    alone = [llm.generate(prompt, GREEDY).token_ids for prompt in PROMPTS]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda prompt: llm.generate(prompt, GREEDY).token_ids, PROMPTS))
    assert together == alone and is_empty(llm)


def test_requests_of_a_group_share_every_step(llm, monkeypatch):
    sizes, step = [], llm.engine.step
    monkeypatch.setattr(llm.engine, "step", lambda: sizes.append(len(events := step())) or events)
    llm.generate([{"prompt_token_ids": [5, 6]}] * 3, GREEDY)
    assert sizes[:3] == [1, 1, 1] and sizes.count(3) > 3  # the prompts, then rounds of all


DOORS = {
    "generate": lambda llm, **words: llm.generate("abc", LONG, **words),
    "stream": lambda llm, **words: list(llm.stream("abc", LONG, **words))[-1],
    "agenerate": lambda llm, **words: asyncio.run(llm.agenerate("abc", LONG, **words)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("late", ["engine", "prompt"])
def test_a_timeout_counts_from_the_call(llm, monkeypatch, door, late):
    """The engine's thread is busy, or reading the prompt lasts: nothing is left of the time, so nothing is written."""
    free, read = threading.Event(), PromptReader.requests
    if late == "engine":
        llm._thread._start().send(Ask(lambda engine: free.wait(30), SimpleQueue()))
        threading.Timer(0.2, free.set).start()
    else:
        monkeypatch.setattr(PromptReader, "requests", lambda *given: time.sleep(0.2) or read(*given))
    result = within(60, lambda: DOORS[door](llm, timeout=0.02))
    assert result.finish_reason == "timeout" and result.token_ids == () and is_empty(llm)


def test_one_refused_request_keeps_all_out(llm):
    good, bad = Request(prompt_token_ids=(5,)), Request(prompt_token_ids=())
    with pytest.raises(RequestError, match="empty"):
        llm._thread.submit([good, bad])
    assert is_empty(llm)


def test_a_stream_hears_of_every_step_and_a_whole_text_once(llm):
    for streams in (True, False):
        (call,) = llm._thread.submit([Request(prompt_token_ids=(5, 6), params=GREEDY)], streams=streams)
        arrivals = []
        while not call.finished:
            call.wait()
            arrivals.append(len(call.take()))
        assert arrivals == [1] * call.writer.stats.num_steps if streams else len(arrivals) == 1


class Node:
    """Something in a cycle."""


def test_a_stream_that_the_collector_finds_inside_a_step_leaves(llm, monkeypatch):
    """The finaliser runs in the engine's thread, in the middle of another request's step."""
    collected, step = [], llm.engine.step

    def step_and_collect():
        events = step()
        collected.append(gc.collect())
        return events

    def lose_a_stream():
        node = Node()
        node.stream = llm.stream("abc", LONG)
        node.itself = node
        next(node.stream)
        return weakref.ref(node)

    gc.disable()
    gc.freeze()  # what other tests have left behind need not be looked through after every step
    try:
        gone = lose_a_stream()
        assert gone() is not None
        monkeypatch.setattr(llm.engine, "step", step_and_collect)
        result = within(60, lambda: llm.generate("xyz", GREEDY))
    finally:
        gc.unfreeze()
        gc.enable()
    assert gone() is None and collected and len(result.token_ids) == 24
    assert within(60, lambda: is_empty(llm))


def test_coroutines_cancelled_at_any_moment_leave_the_engine_empty(llm):
    async def one(dice):
        task = asyncio.create_task(llm.agenerate("abcabc" * dice.randint(1, 40), LONG))
        for _ in range(dice.choice([0, 1, 2, 3, 5, 8])):
            await asyncio.sleep(0)
        await asyncio.sleep(dice.choice([0, 0, 0.001, 0.01, 0.03]))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def all_of_them():
        dice = random.Random(3)
        await asyncio.gather(*(one(dice) for _ in range(60)))
        return is_empty(llm)

    assert within(120, lambda: asyncio.run(all_of_them()))


def test_a_stream_that_a_coroutine_forgets_leaves(llm):
    async def look_once():
        async for chunk in llm.astream("abc", LONG):
            return chunk.token_ids

    assert within(60, lambda: asyncio.run(look_once())) and is_empty(llm)


def test_a_loop_that_is_closed_hurts_no_other(llm):
    loop = asyncio.new_event_loop()
    wake = partial(loop.call_soon_threadsafe, lambda: None)
    (call,) = llm._thread.submit([Request(prompt_token_ids=(5,), params=GREEDY)], streams=True, wake=wake)
    loop.close()
    assert within(60, lambda: llm.generate("xyz", GREEDY)).finish_reason == "length"
    call.leave()
    assert is_empty(llm)


def test_a_caller_who_is_interrupted_leaves(llm, monkeypatch):
    step = llm.engine.step
    monkeypatch.setattr(llm.engine, "step", lambda: time.sleep(0.01) or step())
    main = threading.main_thread().ident
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, LONG)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert is_empty(llm)


def test_the_thread_and_the_weights_go_with_the_llm(model_dir):
    before = set(threading.enumerate())
    llm = LLM(model_dir, dtype="float32")
    assert set(threading.enumerate()) <= before, "no request, no thread"
    list(llm.stream("abc", GREEDY))
    thread = llm._thread._worker.thread
    stream = llm.stream("abc", LONG)
    next(stream)
    gone = weakref.ref(network_of(llm.engine.parts))
    llm.itself, stream = llm, None
    del llm, stream
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
    gc.collect()
    assert gone() is None and set(threading.enumerate()) <= before


def test_the_engines_thread_uses_as_many_threads_as_the_caller_may(llm, monkeypatch):
    seen, step = [], llm.engine.step
    monkeypatch.setattr(llm.engine, "step", lambda: seen.append(torch.get_num_threads()) or step())
    before = torch.get_num_threads()
    try:
        for count in (2, 1):
            torch.set_num_threads(count)
            llm.generate("abc", SamplingParams(max_tokens=2))
            assert set(seen) == {count} and torch.get_num_threads() == count
            seen.clear()
    finally:
        torch.set_num_threads(before)


@pytest.mark.logs_faults
def test_an_unforeseen_error_ends_all_that_run_and_the_engine_goes_on(llm, monkeypatch):
    step, calls = llm.engine.step, []

    def broken():
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("out of the blue")
        return step()

    monkeypatch.setattr(llm.engine, "step", broken)
    results = within(60, lambda: llm.generate(PROMPTS, GREEDY))
    assert [result.finish_reason for result in results] == ["error"] * 4
    assert all(isinstance(result.error, DecodingError) and "out of the blue" in str(result.error) for result in results)
    assert is_empty(llm) and llm.generate("xyz", GREEDY).finish_reason == "length"


class Poison:
    """A target that writes NaN after a few tokens where the prompt begins with this token."""

    def __init__(self, target, first):
        self.target, self.first = target, first

    def __getattr__(self, name):
        return getattr(self.target, name)

    def forward(self, packed, taps=()):
        out = self.target.forward(packed, taps)
        for i, seq in enumerate(packed.seqs):
            if seq.tokens[0] == self.first and seq.num_output > 4:
                out.logits[packed.node_slice(i)] = torch.nan
        return out


def test_a_request_that_fails_has_its_error_and_the_others_their_texts(llm):
    sick = PROMPTS.index("xyz")
    alone = [llm.generate(prompt, GREEDY).token_ids for prompt in PROMPTS]
    whole = llm.engine.parts
    try:
        llm.engine.parts = replace(whole, target=Poison(whole.target, llm.codec.encode("xyz")[0]))
        results = within(60, lambda: llm.generate(PROMPTS, GREEDY))
        for i, result in enumerate(results):
            if i == sick:
                assert result.finish_reason == "error" and isinstance(result.error, NumericsError)
                assert result.token_ids == alone[i][: len(result.token_ids)] and 4 < len(result.token_ids) < 24
            else:
                assert result.finish_reason == "length" and result.error is None and result.token_ids == alone[i]
        for ask in (
            lambda: llm.generate("xyz", GREEDY),
            lambda: list(llm.stream("xyz", GREEDY)),
            lambda: asyncio.run(llm.agenerate("xyz", GREEDY)),
            lambda: asyncio.run(_drain(llm.astream("xyz", GREEDY))),
        ):
            with pytest.raises(NumericsError, match="damaged"):
                within(60, ask)
        pieces = []
        with pytest.raises(NumericsError, match="damaged"):
            for chunk in llm.stream("xyz", GREEDY):
                pieces += chunk.token_ids
        assert tuple(pieces) == results[sick].token_ids, "what was written before is streamed before"
    finally:
        llm.engine.parts = whole
    assert is_empty(llm)


async def _drain(stream):
    return [chunk async for chunk in stream]


def test_forgetting_waits_for_its_turn_and_tells_its_error(llm, monkeypatch):
    assert llm.forget() is None

    def broken(engine):
        raise CapabilityError("it cannot")

    with pytest.raises(CapabilityError, match="it cannot"):
        llm._thread.ask(broken)
    assert llm.generate("abc", GREEDY).finish_reason == "length"


def test_a_coroutine_is_woken_for_every_step_of_a_stream_and_once_for_a_whole_text(llm, monkeypatch):
    arrived, read = [], Call._read

    def counted(call, events):
        arrived.append(call)
        read(call, events)

    monkeypatch.setattr(Call, "_read", counted)
    whole = within(60, lambda: asyncio.run(llm.agenerate("abc", GREEDY)))
    assert len(arrived) == 1 and whole.stats.num_steps > 1
    within(60, lambda: asyncio.run(_drain(llm.astream("abc", GREEDY))))
    assert len(arrived) == 1 + 1 + whole.stats.num_steps  # a stream hears that the engine has taken it


def test_before_a_fork_a_step_without_waiting_callers_is_waited_for(llm, monkeypatch):
    step, entered, go = llm.engine.step, threading.Event(), threading.Event()

    def held():
        entered.set()
        go.wait(30)
        return step()

    stream = llm.stream("abc", LONG)
    next(stream)
    worker, send = llm._thread._worker, llm._thread._worker.send
    monkeypatch.setattr(worker, "send", lambda message: send(message) or go.set())
    monkeypatch.setattr(llm.engine, "step", held)
    assert entered.wait(30)
    stream.close()
    try:
        within(60, llm._thread.settle)
        assert go.is_set() and not worker.is_busy
    finally:
        go.set()
    llm._thread.settle()
    assert is_empty(llm)


def test_before_a_fork_a_step_with_a_waiting_caller_is_not_waited_for(llm, monkeypatch):
    step, entered, go = llm.engine.step, threading.Event(), threading.Event()

    def held():
        entered.set()
        go.wait(30)
        return step()

    asked = []
    monkeypatch.setattr(llm.engine, "step", held)
    (call,) = llm._thread.submit([Request(prompt_token_ids=(5, 6), params=GREEDY)])
    assert entered.wait(30)
    monkeypatch.setattr(llm._thread._worker, "send", asked.append)
    within(60, llm._thread.settle)
    assert not asked and llm._thread.is_busy
    go.set()
    while not call.finished:
        within(60, call.wait)
    while llm._thread.is_busy:
        time.sleep(0.001)
    llm._thread.settle()
    assert not asked, "an idle thread is not asked either"


def test_the_texts_of_a_request_share_the_table_of_its_stop_strings(llm, monkeypatch):
    made = []
    monkeypatch.setattr(
        "outdraft.engine.callers.thread.StopTable", lambda stops: made.append(stops) or StopTable(stops)
    )
    params = SamplingParams(max_tokens=4, temperature=1.0, n=3, stop=["zq"])
    assert len(llm.generate(PROMPTS[0], params).outputs) == 3 and made == [("zq",)]
