"""Work that an engine does while no request runs: a worker that counts its slices, and gives way to requests."""

import gc
import threading
import weakref

import pytest

from outdraft import LLM, SamplingParams
from outdraft.engine.between_steps import while_idle

PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)
LONG = 60  # seconds after which a test has failed


class Counts:
    """Counts slices. Each goes on until a request waits where `holds`, and else ends at once."""

    def __init__(self, llm, *, slices=None, holds=False):
        self.engine = weakref.ref(llm.engine)
        self.num_slices, self.most, self.holds = 0, slices, holds
        self.began, self.gave_way, self.was_beside = threading.Event(), 0, False

    def __call__(self, is_wanted):
        self.num_slices += 1
        self.was_beside |= self.engine().has_work
        self.began.set()
        if self.holds:
            pause = threading.Event()
            while not is_wanted():
                pause.wait(0.001)
            self.gave_way += 1
        return self.most is None or self.num_slices < self.most


@pytest.fixture
def llm():
    with LLM("zoo:target", drafter="none") as llm:
        yield llm


def settled(llm):
    """Behind everything that was said before; the thread has gone from its slice."""
    return llm._thread.ask(lambda engine: None)


def test_a_request_interrupts_the_slice_and_its_text_is_the_same(llm):
    text = llm.generate("The sea", PARAMS).token_ids
    work = Counts(llm, holds=True)
    while_idle(llm, work)
    for number in (1, 2):
        assert work.began.wait(LONG)
        work.began.clear()
        assert llm.generate("The sea", PARAMS).token_ids == text and work.gave_way >= number
    while_idle(llm, None)
    assert not work.was_beside, "a slice ran while a request did"
    done = work.num_slices
    llm.generate("The sea", PARAMS)
    settled(llm)
    assert work.num_slices == done


def test_work_that_is_done_is_asked_again_when_a_request_has_ended(llm):
    work = Counts(llm, slices=1)
    while_idle(llm, work)
    assert work.began.wait(LONG)
    counts = []
    for _ in range(3):
        work.began.clear()
        llm.generate("The sea", PARAMS)
        assert work.began.wait(LONG)
        counts.append(work.num_slices)
    assert counts == [2, 3, 4]


@pytest.mark.logs_faults
def test_what_breaks_is_asked_no_more(llm, caplog):
    began = threading.Event()

    def breaks(is_wanted):
        began.set()
        raise SystemExit

    while_idle(llm, breaks)
    assert began.wait(LONG) and len(llm.generate("The sea", PARAMS).token_ids) == 12
    assert llm.engine.idle is None and "is not asked again" in caplog.text
    while_idle(llm, Counts(llm, slices=1))


def test_other_work_takes_its_place(llm):
    first, second = Counts(llm), Counts(llm, slices=1)
    while_idle(llm, first)
    assert first.began.wait(LONG)
    while_idle(llm, second)
    assert second.began.wait(LONG)
    done = first.num_slices
    llm.generate("The sea", PARAMS)
    settled(llm)
    assert first.num_slices == done


def test_it_rests_before_a_fork_until_a_request_is_over(llm):
    work = Counts(llm)
    while_idle(llm, work)
    assert work.began.wait(LONG) and llm._thread.is_busy
    llm._thread.settle()
    done = work.num_slices
    assert not llm._thread.is_busy and llm._thread._worker.inbox.empty()
    work.began.clear()
    assert work.num_slices == done
    llm.generate("The sea", PARAMS)
    assert work.began.wait(LONG)


def test_an_llm_that_works_while_idle_can_be_let_go():
    llm = LLM("zoo:target", drafter="none")
    work = Counts(llm)
    while_idle(llm, work)
    assert work.began.wait(LONG)
    thread, gone = llm._thread._worker.thread, weakref.ref(llm)
    del llm
    gc.collect()
    thread.join(LONG)
    assert gone() is None and not thread.is_alive()
