"""The soak in short, and that it notices a wrong text, a page that is not given back, and a fault without effect."""

import asyncio
import logging
import threading
from itertools import pairwise
from random import Random
from types import SimpleNamespace

import pytest

from lab.own_caches import own_caches
from lab.soak import CALLERS, Tally, breaks_at_times, full_at_times, kinds, left_over, soak
from outdraft import LLM
from outdraft.engine.assembly.variant import runner_of
from outdraft.options.errors import CacheFullError


@pytest.fixture
def llm():
    logging.getLogger("outdraft").setLevel(logging.CRITICAL)
    with LLM("zoo:target", kv_cache_memory="1MiB", enable_prefix_caching=True, max_num_seqs=24) as made:
        yield made
    logging.getLogger("outdraft").setLevel(logging.NOTSET)


def test_no_client_is_wronged(llm):
    full_at_times(runner_of(llm.engine.parts).cache, Random(0), 0.01)
    broke = breaks_at_times(llm.engine.parts.drafter, Random(0), 0.01)
    tally = asyncio.run(soak(llm, 120, 1))
    assert tally.wrong + llm._thread.ask(left_over) == []
    assert {"cancelled", "whole", "error", "timeout"} <= set(tally.counts)
    assert llm.engine.scheduler.num_preempted > 0 and set(broke) == {"begin", "propose", "observe"}


def test_a_wrong_text_is_noticed(llm, monkeypatch):
    """Rows that a preempted text reads again come from another position."""
    monkeypatch.setattr("lab.soak.LLM.with_drafter", lambda self, name: Liar(self))
    assert any("wrote" in one for one in asyncio.run(soak(llm, 30, 1)).wrong)


class Liar:
    """Plain decoding that writes something else."""

    def __init__(self, llm):
        self.llm = llm

    def generate(self, prompts, params):
        return [type("R", (), {"token_ids": (1, 2, 3)}) for _ in prompts]

    def close(self):
        pass


def test_a_page_that_is_not_given_back_is_noticed(llm):
    engine = llm.engine
    llm.generate("Once upon a time")
    llm._thread.ask(lambda engine: runner_of(engine.parts).cache.add(10**6))
    llm._thread.ask(lambda engine: runner_of(engine.parts).cache.reserve(10**6, 5))
    assert any("pages are free" in one for one in llm._thread.ask(left_over))
    assert not engine.has_work


def test_a_page_of_a_drafter_that_is_not_given_back_is_noticed():
    with LLM("zoo:target", kv_cache_memory="1MiB", draft_model="zoo:draft") as llm:
        assert llm._thread.ask(left_over) == []
        (cache,) = own_caches(llm.engine.parts.drafter, runner_of(llm.engine.parts).cache)
        llm._thread.ask(lambda engine: cache.add(10**6))
        llm._thread.ask(lambda engine: cache.reserve(10**6, 5))
        (told,) = llm._thread.ask(left_over)
        assert "pages are free of a drafter's" in told


def test_a_planted_fault_of_a_drafter_is_raised_before_and_after_its_work():
    done = []

    class Works:
        def begin(self, seqs):
            done.append("begin")

        propose = observe = begin

    drafter = Works()
    told, raised = breaks_at_times(drafter, Random(1), 0.6), []
    for _ in range(100):
        try:
            drafter.begin([])
        except RuntimeError as error:
            raised.append("when it had done" in str(error))
    assert told == {"begin": len(raised)} and 20 < sum(raised) < 40 and 20 < len(raised) - sum(raised) < 40
    assert len(done) == 100 - (len(raised) - sum(raised))


def test_a_planted_full_pool_has_room_when_the_texts_try_again():
    """As often as a batch of all callers may ask, together and each text alone; no other caller's takes are refused."""
    cache, refused = SimpleNamespace(store=SimpleNamespace(take=lambda count: [count])), []
    full_at_times(cache, Random(1), 0.5)

    def takes():
        for i in range(2000):
            try:
                assert cache.store.take(1) == [1]
            except CacheFullError:
                refused.append(i)

    takes()
    assert refused == []
    thread = threading.Thread(target=takes, name="outdraft-engine")
    thread.start()
    thread.join()
    assert len(refused) > 10 and min(b - a for a, b in pairwise(refused)) > 2 * CALLERS


def test_kinds_share_beginnings_and_differ_in_settings():
    found = kinds(Random(0), 4096)
    starts = {tuple(prompt["prompt_token_ids"][:3]) for prompt, _ in found}
    assert len(starts) == 1 and len({params.seed for _, params in found}) > 10 and Tally().wrong == []
