"""Sampling settings: None is "not set", every wrong value is a `RequestError` that names it, its value and the cure."""

from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
import torch

from outdraft.options.errors import RequestError
from outdraft.options.foreign_params import called_here
from outdraft.options.params import DEFAULTS, SamplingParams, seed_of_text

NAMES = [name for name in signature(SamplingParams).parameters if name != "unknown"]


@pytest.mark.parametrize("name", NAMES)
def test_none_is_not_set(name: str):
    usual = getattr(SamplingParams(), name)
    assert getattr(SamplingParams(**{name: None}), name) == (None if name == "max_tokens" else usual)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stop": 3}, "stop=3 must be a list, each a text"),
        ({"stop": [""]}, "non-empty"),
        ({"temperature": "0.8"}, "temperature='0.8' must be a number"),
        ({"temperature": float("nan")}, "temperature=nan must be a number"),
        ({"temperature": 1e-300}, "must be 0"),
        ({"temperature": 1e39}, "must be 0"),
        ({"seed": 1.5}, r"seed=1\.5 must be a whole number or nothing"),
        ({"seed": 2**70}, "at most 64 bits"),
        ({"top_k": 1.5}, r"top_k=1\.5 must be a whole number"),
        ({"top_k": -2}, "top_k=-2 is out of range"),
        ({"logprobs": 1.5}, r"logprobs=1\.5 must be"),
        ({"logit_bias": {3: float("inf")}}, "logit_bias=.*-inf for a token"),
        ({"logit_bias": {3: 1e39}}, "logit_bias"),
        ({"logit_bias": {"3": 1.0}}, "logit_bias=.* must be a table"),
        ({"max_tokens": True}, "max_tokens=True must be"),
        ({"max_tokens": 10**5000}, "max_tokens=<a value of type int> must be"),
        ({"topk": 3}, "SamplingParams takes no 'topk', did you mean 'top_k'"),
        ({"max_new_tokens": 3}, "takes no 'max_new_tokens'; here it is called max_tokens"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, object], said: str):
    with pytest.raises(RequestError, match=said):
        SamplingParams(**given)


def test_vllms_spellings_of_off():
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=0) == SamplingParams()


def test_numbers_of_numpy_and_torch_are_numbers():
    made = SamplingParams(
        max_tokens=np.int64(5),
        temperature=np.float32(0.5),
        top_k=torch.tensor(3),
        seed=np.uint64(7),
        ignore_eos=np.bool_(True),
        stop_token_ids=np.array([1, 2]),
        logit_bias={np.int64(3): torch.tensor(2.0)},
    )
    assert made == SamplingParams(
        max_tokens=5, temperature=0.5, top_k=3, seed=7, ignore_eos=True, stop_token_ids=(1, 2), logit_bias={3: 2.0}
    )
    kinds = [type(made.max_tokens), type(made.temperature), type(made.top_k), type(made.ignore_eos)]
    assert kinds == [int, float, int, bool] and {type(one) for one in made.stop_token_ids} == {int}


def test_it_is_a_typed_record_as_before():
    parameters = signature(SamplingParams).parameters
    assert parameters["top_p"].annotation == float | None and parameters["top_p"].default == 1.0
    assert replace(SamplingParams(seed=3), stop="x") == SamplingParams(seed=3, stop=("x",))
    with pytest.raises(AttributeError):
        SamplingParams().seed = 3


def test_the_texts_of_one_request_have_seeds_that_no_neighbour_has():
    texts = {
        seed: [one.seed for one in SamplingParams(temperature=1.0, seed=seed, n=4).singles()] for seed in range(50)
    }
    assert all(seeds[0] == seed for seed, seeds in texts.items())
    everyone = [seed for seeds in texts.values() for seed in seeds]
    assert len(set(everyone)) == len(everyone) == 200
    assert all(0 <= seed < 2**63 for seed in everyone)
    assert seed_of_text(5, 1) == 571197765773112868  # users may have kept it
    assert [one.seed for one in SamplingParams(temperature=1.0, n=2).singles()] == [None, None]


@pytest.mark.parametrize("name", ["use_beam_search", "num_beams", "length_penalty"])
def test_beam_search_is_refused_by_name_with_the_cure(name: str):
    with pytest.raises(RequestError, match=f"'{name}': beam search is not here.* n=4 with a temperature"):
        SamplingParams(**{name: 4})
    with pytest.raises(RequestError, match=f"{name}: beam search is not here"):
        called_here(name, DEFAULTS)


def test_ids_are_kept_once_in_their_order():
    names = ("stop_token_ids", "banned_token_ids", "allowed_token_ids")
    made = SamplingParams(stop=["b", "a", "b"], **{name: [5, 3, 5] for name in names})
    assert [getattr(made, name) for name in names] == [(5, 3)] * 3 and made.stop == ("b", "a")


def test_the_texts_of_one_request_are_not_checked_again(monkeypatch):
    made = SamplingParams(temperature=1.0, seed=5, n=3, prompt_logprobs=1, banned_token_ids=[4])
    monkeypatch.setattr("outdraft.options.params.check_fields", lambda *given, **more: pytest.fail("checked again"))
    texts = made.singles()
    assert [one.prompt_logprobs for one in texts] == [1, None, None] and {one.n for one in texts} == {1}
    assert all(one.banned_token_ids is made.banned_token_ids for one in texts) and made.n == 3
