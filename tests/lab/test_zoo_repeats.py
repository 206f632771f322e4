"""Texts that go round in circles are found, and others are not."""

import pytest

from lab.zoo.repeats import loops, share_that_loops
from outdraft import LLM, SamplingParams

WALK = [(7 * i * i + 3 * i) % 101 for i in range(128)]


@pytest.mark.parametrize("period", [1, 2, 5, 8, 13, 31, 32])
def test_a_piece_three_times_over_is_a_loop(period: int):
    piece = [1000 + i for i in range(period)]
    times = max(3, -(-24 // period))
    text = [*WALK, *piece * times]
    assert loops(text)
    assert not loops([*WALK, *(piece * times)[-23:]]), "too short"
    if period >= 12:
        assert not loops([*WALK, *piece * 2]), "twice only"
    assert not loops([*text, 5]), "it left the loop"


def test_other_texts_are_none():
    assert not loops(WALK) and not loops([]) and not loops([3] * 23)
    assert not loops([*WALK, *[1000 + i for i in range(33)] * 3]), "too long a piece"


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("zoo:target", drafter="none")


def test_shares_are_those_of_the_greedy_texts(llm: LLM):
    openings = {"one": [[5, 6, 7], [8, 9]], "other": [[300, 301, 302]]}
    expected = {
        source: [
            loops(llm.generate({"prompt_token_ids": ids}, SamplingParams(max_tokens=96)).token_ids) for ids in prompts
        ]
        for source, prompts in openings.items()
    }
    found = share_that_loops(llm, openings, 96)
    assert found == {
        "one": sum(expected["one"]) / 2,
        "other": float(expected["other"][0]),
        "all": (sum(expected["one"]) + sum(expected["other"])) / 3,
    }
