"""What belongs to one process says so when it is pickled or copied; what it wrote can be taken along."""

import asyncio
import copy
import pickle

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.options.errors import CapabilityError


@pytest.fixture(scope="module")
def llm():
    with LLM("zoo:target", drafter="ngram") as made:
        yield made


async def answers(llm):
    made = await llm.open(["It was late when"], SamplingParams(max_tokens=2))
    made.leave()
    return made


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("part", ["llm", "engine", "thread", "answers", "call"])
def test_it_is_neither_pickled_nor_copied(llm, part, take):
    parts = {"llm": llm, "engine": llm.engine, "thread": llm._thread, "answers": None}
    if part in ("answers", "call"):
        parts["answers"] = asyncio.run(answers(llm))
        parts["call"] = parts["answers"]._calls[0]
    name = type(parts[part]).__name__
    for held in (parts[part], [parts[part]]):
        if take is copy.copy and isinstance(held, list):
            continue
        with pytest.raises(CapabilityError, match=rf"^{name} holds weights .* make an LLM in the other process"):
            take(held)
    assert llm.generate("It was late when", SamplingParams(max_tokens=2)).token_ids


def test_results_and_pieces_are_taken_along(llm):
    params = SamplingParams(max_tokens=6, n=2, temperature=1.0, seed=3, logprobs=2, prompt_logprobs=1)
    result = llm.generate("It was late when", params, return_draft_tree=True)
    assert pickle.loads(pickle.dumps(result)) == result == copy.deepcopy(result)
    assert pickle.loads(pickle.dumps(result)).stats.as_metrics() == result.stats.as_metrics()
    for chunk in llm.stream("It was late when", params, return_draft_tree=True):
        assert pickle.loads(pickle.dumps(chunk)) == chunk
    assert pickle.loads(pickle.dumps(params)) == params


@pytest.mark.logs_faults
def test_a_result_that_failed_is_taken_along(llm):
    class Broken:
        def advance(self, token):
            raise ValueError("x")

        def allowed(self, path):
            return torch.ones(llm.engine.parts.target.vocab_size, dtype=torch.bool)

    (result,) = llm.generate(["It was late when"], SamplingParams(max_tokens=4), constraint=Broken)
    again = pickle.loads(pickle.dumps(result))
    assert (type(again.error), str(again.error)) == (type(result.error), str(result.error))
