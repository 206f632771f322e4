"""Prompts of every kind and with references, one request for each; and errors before any work."""

from array import array

import numpy
import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.engine.callers.prompts import PromptReader
from outdraft.options.errors import RequestError

GREEDY = SamplingParams(max_tokens=24)


@pytest.fixture(scope="module")
def llm(model_dir) -> LLM:
    return LLM(model_dir, dtype="float32")


def test_a_prompt_may_be_text_a_mapping_or_ids(llm):
    ids = llm.codec.encode("hello")
    results = llm.generate(["hello", {"prompt": "hello"}, {"prompt_token_ids": ids}], GREEDY)
    assert len({r.token_ids for r in results}) == 1 and len(results[0].token_ids) == 24
    assert results[0].text == llm.codec.decode(results[0].token_ids, continues=True)
    assert results[0].finish_reason == "length" and results[0].prompt_token_ids == tuple(ids)


@pytest.mark.parametrize(
    "prompt,named",
    [
        ("", "empty"),
        ({"prompt_token_ids": []}, "empty"),
        ({"prompt_token_ids": [999]}, "999"),
        ("x" * 5000, "5000 tokens"),
        ({"text": "x"}, "'text'"),
        (7, "int"),
        ({"prompt_token_ids": "abc"}, "whole numbers"),
        ({"prompt_token_ids": [1.5]}, "whole numbers"),
        ({"prompt_token_ids": None}, "whole numbers"),
        ({"prompt_token_ids": {1: 2}}, "whole numbers"),
        ({"prompt_token_ids": {1, 2}}, "whole numbers"),
        ({"prompt_token_ids": [True]}, "whole numbers"),
        ({"prompt_token_ids": torch.ones(2) > 0}, "whole numbers"),
    ],
)
def test_a_bad_prompt_is_refused_before_any_work(llm, prompt, named):
    with pytest.raises(RequestError, match=named):
        llm.generate(["fine", prompt], GREEDY)
    assert not llm.engine.has_work


@pytest.mark.parametrize(
    "params,words,named",
    [
        ({"max_tokens": 3}, {}, "SamplingParams"),
        ({}, {}, "SamplingParams"),
        (0, {}, "SamplingParams"),
        (GREEDY, {"references": "one text"}, "list of texts"),
        (GREEDY, {"references": 5}, "list of texts"),
        (GREEDY, {"references": [None]}, "whole numbers"),
        (GREEDY, {"references": [[5, 999]]}, "references names .* 999"),
        (GREEDY, {"references": [[-1]]}, "references names .* -1"),
        ([GREEDY] * 3, {}, "1 prompts but 3"),
        (GREEDY, {"num_speculative_token": 2}, "'num_speculative_tokens'"),
    ],
)
def test_a_bad_setting_is_refused_before_any_work(llm, params, words, named):
    with pytest.raises(RequestError, match=named):
        llm.generate(["fine"], params, **words)
    assert not llm.engine.has_work


def test_references_of_a_prompt_and_of_all(llm, monkeypatch):
    seen = []
    enqueue = llm.engine.enqueue
    monkeypatch.setattr(llm.engine, "enqueue", lambda seq: seen.append(seq.request) or enqueue(seq))
    one = SamplingParams(max_tokens=1)
    llm.generate([{"prompt": "a", "references": ["own", [5, 6]]}, "b"], one, references=["shared"])
    own, shared = (tuple(llm.codec.encode(text)) for text in ("own", "shared"))
    assert [request.references for request in seen] == [(own, (5, 6), shared), (shared,)]
    for prompt in ({"references": ["x"]}, {"prompt": "a", "prompt_token_ids": [1]}, {"prompt": "a", "references": "x"}):
        with pytest.raises(RequestError, match="references"):
            llm.generate(prompt, one)


def test_ids_may_be_a_tensor_and_need_no_tokenizer():
    reader = PromptReader(name="nameless", codec=None)
    for ids in (torch.tensor([3, 1]), numpy.array([3, 1]), array("i", [3, 1]), range(3, 0, -2), (3, numpy.int64(1))):
        assert reader.encode({"prompt_token_ids": ids}) == (3, 1)
    with pytest.raises(RequestError, match=r"nameless has no tokenizer\.json"):
        reader.encode("text")
