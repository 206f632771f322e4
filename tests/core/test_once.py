"""What is made once of a request is shared by its texts, and by requests of the same settings, and by no others."""

import pickle
from dataclasses import replace

import pytest

from outdraft.core.once import Once
from outdraft.core.request import Request, share
from outdraft.engine.callers.prompts import PromptReader
from outdraft.engine.requests.checks import check_request
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams

PARAMS = SamplingParams(n=3, temperature=1.0, banned_token_ids=[5])


def test_it_is_made_once():
    once, made = Once(), []
    for _ in range(3):
        assert once.of("a", lambda: made.append("a")) is None
        assert once.of(("b", 1), lambda: made.append("b") or 7) == 7
    assert made == ["a", "b"]


def test_its_copy_elsewhere_is_made_anew():
    once = Once()
    once.of("a", lambda: lambda: None)  # which cannot be pickled
    assert pickle.loads(pickle.dumps(once)).of("a", lambda: 2) == 2


def test_texts_of_a_request_share_and_a_changed_request_does_not():
    request = Request(prompt_token_ids=(1,), params=PARAMS)
    first, *others = request.singles()
    assert all(one.once is request.once for one in (first, *others))
    assert replace(request, params=SamplingParams(banned_token_ids=[6])).once is not request.once
    assert request == replace(request)


def test_requests_of_the_same_settings_share():
    same, other = PARAMS, SamplingParams(n=3, temperature=1.0, banned_token_ids=[5])
    asked = [Request(prompt_token_ids=(i,), params=one) for i, one in enumerate([same, same, other])]
    share(asked)
    assert asked[0].once is asked[1].once is not asked[2].once
    read = PromptReader(name="m", codec=None).requests([{"prompt_token_ids": [i]} for i in (1, 2)], PARAMS)
    assert read[0].once is read[1].once


def test_long_lists_are_checked_once_for_all_texts(monkeypatch):
    checked = []
    monkeypatch.setattr(
        "outdraft.engine.requests.checks.require_writable", lambda *given, **named: checked.append("written")
    )
    monkeypatch.setattr(
        "outdraft.engine.requests.checks.require_known_tokens", lambda *given, **named: checked.append("known")
    )
    for one in Request(prompt_token_ids=(1,), params=PARAMS, references=((1, 2),)).singles():
        check_request(one, 10, 20, frozenset({0}))
    assert checked == ["known", "written"]


def test_each_engine_checks_anew():
    request = Request(prompt_token_ids=(1,), params=SamplingParams(banned_token_ids=[5]))
    check_request(request, 10, 20, frozenset())
    with pytest.raises(RequestError, match="outside the vocabulary of 5"):
        check_request(request, 5, 20, frozenset())
