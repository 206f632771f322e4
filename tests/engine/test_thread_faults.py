"""Whatever breaks or ends the engine's thread, no caller waits for ever: callers are answered, the next is served."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from engine.test_thread import GREEDY, LONG, PROMPTS, is_empty, within

from outdraft import LLM, SamplingParams
from outdraft.core.request import Request
from outdraft.engine.between_steps import listen
from outdraft.options.errors import CapabilityError, DecodingError

pytestmark = pytest.mark.logs_faults


@pytest.fixture(scope="module")
def llm(model_dir) -> LLM:
    return LLM(model_dir, dtype="float32", drafter="ngram", num_speculative_tokens=3)


def test_a_request_that_is_refused_in_the_step_that_breaks_is_answered(llm, monkeypatch):
    admit = llm.engine._admit

    def refuse_one(seq):
        if seq.tokens[0] == 7:
            raise CapabilityError("no room for it")
        admit(seq)

    def broken(turn):
        raise RuntimeError("out of the blue")

    monkeypatch.setattr(llm.engine, "_admit", refuse_one)
    with monkeypatch.context() as breaking:
        breaking.setattr(llm.engine, "_pass", broken)
        ids = ([7, 8], [5, 6])
        results = within(60, lambda: llm.generate([{"prompt_token_ids": one} for one in ids], GREEDY))
    assert [result.finish_reason for result in results] == ["error"] * 2
    assert is_empty(llm) and llm.generate("xyz", GREEDY).finish_reason == "length"


@pytest.mark.parametrize("error", [SystemExit("bye"), GeneratorExit(), RuntimeError("odd")])
def test_what_is_no_ordinary_exception_ends_requests_and_not_the_thread(llm, monkeypatch, error):
    def broken():
        raise error

    llm.generate("abc", GREEDY)
    thread = llm._thread._worker.thread
    with monkeypatch.context() as breaking:
        breaking.setattr(llm.engine, "step", broken)
        results = within(60, lambda: llm.generate(PROMPTS, GREEDY))
    assert all(isinstance(result.error, DecodingError) for result in results)
    assert type(error).__name__ in str(results[0].error)
    assert all("the other requests of the batch ended with it" in str(result.error) for result in results)
    assert within(60, lambda: llm.generate("abc", GREEDY)).finish_reason == "length"
    assert llm._thread._worker.thread is thread


@pytest.mark.parametrize("where", ["end of a request", "asked", "left"])
def test_a_system_exit_elsewhere(llm, monkeypatch, where):
    def broken(*given):
        raise SystemExit("bye")

    with monkeypatch.context() as breaking:
        if where == "end of a request":
            breaking.setattr(llm.engine, "_retire", broken)
            assert within(60, lambda: llm.generate(PROMPTS, GREEDY))[0].finish_reason == "error"
        elif where == "asked":
            with pytest.raises(SystemExit):
                within(60, lambda: llm._thread.ask(broken))
        else:
            breaking.setattr(llm.engine, "cancel", broken)
            stream = llm.stream("abc", LONG)
            next(stream)
            stream.close()
            within(60, lambda: is_empty(llm))
    llm._thread.ask(lambda engine: engine.abandon())
    llm.engine.running.clear()
    assert within(60, lambda: llm.generate("abc", GREEDY)).finish_reason == "length"


def test_a_thread_that_breaks_answers_all_and_the_next_request_begins_another(llm, monkeypatch):
    """Those in the step, those in the inbox and those who ask; `abandon` is what nothing stands behind."""
    step, entered, go = llm.engine.step, threading.Event(), threading.Event()

    def wait():
        entered.set()
        go.wait(30)
        raise SystemExit("bye")

    def broken():
        raise RuntimeError("cannot clear away")

    llm.generate("abc", GREEDY)
    thread, answers = llm._thread._worker.thread, []

    def keep(ask):
        try:
            answers.append(ask())
        except Exception as error:
            answers.append(error)

    asks = [
        lambda: llm.generate("abc", GREEDY),
        lambda: llm.generate("xyz", GREEDY),
        llm.forget,
        lambda: list(llm.stream("abc", GREEDY)),
    ]
    callers = [threading.Thread(target=keep, args=[ask], daemon=True) for ask in asks]
    with monkeypatch.context() as breaking:
        breaking.setattr(llm.engine, "step", wait)
        breaking.setattr(llm.engine, "abandon", broken)
        callers[0].start()
        assert entered.wait(30)
        for caller in callers[1:]:
            caller.start()
        while llm._thread._worker.inbox.qsize() < 3:
            time.sleep(0.01)
        go.set()
        for caller in callers:
            caller.join(30)
    assert len(answers) == 4 and all(isinstance(one, DecodingError) for one in answers), answers
    thread.join(30)
    assert not llm._thread.is_busy
    llm.engine.abandon()
    assert llm.engine.step == step
    assert within(60, lambda: llm.generate("abc", GREEDY)).finish_reason == "length"
    assert llm._thread._worker.thread is not thread


def test_a_thread_that_breaks_leaves_nothing_for_the_next(llm):
    told = []

    def broken():
        told.append(None)
        if len(told) == 1:
            raise ValueError("a fault of the test")

    requests = [Request(prompt_token_ids=(5, 6), params=LONG) for _ in range(3)]
    calls = llm._thread.submit(requests, streams=True, wake=broken)
    llm._thread._worker.thread.join(30)
    assert not llm.engine.running and not llm.engine.waiting
    for call in calls:
        call.read()
    assert all(isinstance(call.writer.error, DecodingError) for call in calls[1:])
    assert within(60, lambda: llm.generate("abc", GREEDY)).finish_reason == "length"


@pytest.mark.parametrize("first", ["a request", "a question"])
def test_passes_have_the_threads_of_their_requests(llm, monkeypatch, first):
    """Whatever message woke the engine's thread."""
    counts, asked, go, step = [], threading.Event(), threading.Event(), llm.engine.step
    monkeypatch.setattr(llm._thread, "_native", True)
    monkeypatch.setattr(llm.engine, "step", lambda: counts.append(torch.get_num_threads()) or step())
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        if first == "a question":
            question = threading.Thread(target=llm._thread.ask, args=[lambda engine: asked.set() or go.wait(30)])
            question.start()
            assert asked.wait(30)
        (call,) = llm._thread.submit([Request(prompt_token_ids=(5, 6), params=GREEDY)])
        go.set()
        within(60, call.wait)
    finally:
        torch.set_num_threads(before)
    assert set(counts) == {1}


def test_who_sends_to_a_thread_that_has_just_ended_is_answered(llm):
    """They met it alive, and it ended before the message came."""
    llm.generate("abc", GREEDY)
    worker = llm._thread._worker
    llm._thread._start, start = lambda: worker, llm._thread._start
    try:
        worker.stop()
        assert not worker.thread.is_alive()
        with pytest.raises(CapabilityError, match="stopped"):
            within(60, lambda: llm.generate("abc", GREEDY))
        with pytest.raises(CapabilityError, match="stopped"):
            within(60, llm.forget)
    finally:
        llm._thread._start = start
    assert within(60, lambda: llm.generate("abc", GREEDY)).finish_reason == "length"


def test_a_request_from_the_engines_own_thread_is_refused(llm, monkeypatch):
    step, inner = llm.engine.step, []

    def step_and_ask():
        if not inner:
            inner.append("asked")
            with pytest.raises(CapabilityError, match="own thread"):
                llm.generate("xyz", GREEDY)
            inner.append("refused")
        return step()

    monkeypatch.setattr(llm.engine, "step", step_and_ask)
    assert within(60, lambda: llm.generate("abc", GREEDY)).finish_reason == "length"
    assert inner == ["asked", "refused"] and is_empty(llm)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")
def test_who_asks_can_be_interrupted(llm):
    """Also where the system hands the signal to another thread, which does not wake the one that waits."""
    over = threading.Event()
    other = threading.Thread(target=over.wait, args=[30], daemon=True)
    other.start()

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(other.ident, signal.SIGUSR1))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            llm._thread.ask(lambda engine: over.wait(10))
    finally:
        over.set()
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began < 5


AT_EXIT = """
import atexit

def late():
    try:
        list(stream)
        print("the stream goes on")
    except OutdraftError as error:
        print("raised:", "ending" in str(error))
    try:
        llm.generate(PROMPT, PARAMS)
        print("written")
    except OutdraftError as error:
        print("raised:", "ending" in str(error))

atexit.register(late)  # before the engine's own, so it is called after it
from outdraft import LLM, OutdraftError, SamplingParams
PARAMS, PROMPT = SamplingParams(max_tokens=200, ignore_eos=True), {{"prompt_token_ids": [5, 6, 7]}}
llm = LLM({model!r}, dtype="float32")
step = llm.engine.step
import time
llm.engine.step = lambda: time.sleep(0.01) or step()
stream = llm.stream(PROMPT, PARAMS)
next(stream)
"""


def test_a_request_when_the_process_is_ending_is_refused(model_dir):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = AT_EXIT.format(model=str(model_dir))
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=env)
    assert made.stdout.split("\n")[-3:] == ["raised: True"] * 2 + [""], made.stdout + made.stderr
    assert not made.stderr and made.returncode == 0


def test_requests_that_the_engine_has_dropped_have_an_event_each(llm):
    calls = llm._thread.submit([Request(prompt_token_ids=(5, 6), params=LONG)] * 3, streams=True)
    llm._thread._worker.stop()
    for call in calls:
        while not call.finished:
            within(60, call.wait)
        with pytest.raises(CapabilityError, match="stopped"):
            call.raise_error()
    llm._thread.ask(lambda engine: engine.abandon())


def test_who_cannot_be_queued_gets_an_answer_and_leaves_nothing():
    """Whatever it is that breaks: the next request finds an engine that works."""
    llm = LLM("zoo:target", drafter="none")

    class Breaks:
        def asked(self, seq, now):
            raise OSError("planted")

        def ended(self, seq, now):
            pass

    llm.engine.watch.add(watch := Breaks())
    with pytest.raises(DecodingError, match="planted"):
        llm.generate("Once", SamplingParams(max_tokens=3))
    llm.engine.watch.remove(watch)
    assert not llm.engine.has_work
    assert len(llm.generate("Once", SamplingParams(max_tokens=3)).token_ids) == 3


def test_a_watch_that_breaks_twice_leaves_no_caller_waiting(llm):
    """When it hears of a request, and again when that is cleared away."""

    class Broken:
        def asked(self, seq, now):
            raise RuntimeError("asked")

        def ended(self, seq, now):
            raise RuntimeError("ended")

    stop = listen(llm, lambda engine: Broken())
    try:
        for ask in (lambda: llm.generate(PROMPTS, GREEDY)[0].error, lambda: list(llm.stream("abc", GREEDY))):
            try:
                assert isinstance(within(20, ask), DecodingError)
            except DecodingError as error:
                assert "asked" in str(error)
    finally:
        stop()
    assert is_empty(llm) and llm.generate("xyz", GREEDY).finish_reason == "length"
