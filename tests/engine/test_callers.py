"""Several callers of one engine: threads share its batch, and each gets its own text."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from outdraft import LLM, SamplingParams
from outdraft.core.errors import RequestError
from outdraft.core.request import Request
from outdraft.engine.callers import Callers

GREEDY = SamplingParams(max_tokens=24)
PROMPTS = ["abcabcabc", "xyz", "the cat sat", "q"]


@pytest.fixture(scope="module")
def llm(model_dir) -> LLM:
    return LLM(model_dir, dtype="float32", drafter="ngram", num_speculative_tokens=3)


def test_threads_get_their_own_texts(llm):
    alone = [llm.generate(prompt, GREEDY).token_ids for prompt in PROMPTS]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda prompt: llm.generate(prompt, GREEDY).token_ids, PROMPTS))
    assert together == alone and not llm.engine.has_work


def test_a_step_serves_all_who_wait_and_nobody_twice(llm):
    callers = Callers(llm.engine, llm.codec)
    first, second = callers.submit([Request(prompt_token_ids=(5, 6), params=GREEDY)] * 2)
    while not first.finished:
        callers.serve(lambda: first.finished)
    written = len(second.seq.output)
    assert written >= len(first.seq.output) - 1  # the second's prompt was read one step later
    callers.serve(lambda: True)
    assert len(second.seq.output) == written
    callers.leave([first, second])
    assert not llm.engine.has_work


def test_one_refused_request_keeps_all_out(llm):
    good, bad = Request(prompt_token_ids=(5,)), Request(prompt_token_ids=())
    with pytest.raises(RequestError, match="empty"):
        Callers(llm.engine, llm.codec).submit([good, bad])
    assert not llm.engine.has_work
    odd = Request(prompt_token_ids=(5,), params=SamplingParams(stop_token_ids=("x",)))  # no error of ours
    with pytest.raises(TypeError):
        Callers(llm.engine, llm.codec).submit([good, odd])
    assert not llm.engine.has_work
