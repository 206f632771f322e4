"""Reference documents: what they hold is copied, what they do not hold costs nothing."""

import random

import pytest
from drafters.drafting import Reciter, make, sequence, states, write

from outdraft.core.policy import Budget
from outdraft.options.errors import ConfigError

DOCUMENT = random.Random(2).sample(range(100, 300), 60)


def guess(prompt, references, depth=4, **options):
    drafter, seq = make("llma", **options), sequence(prompt, references=references)
    drafter.begin([seq])
    return drafter.propose([seq], [Budget(depth=depth)])[0]


def test_a_document_is_copied():
    prompt = [1, 2, 3, DOCUMENT[0]]
    text = prompt + DOCUMENT[1:]
    seq = sequence(prompt, references=[range(400, 460), DOCUMENT], max_tokens=len(DOCUMENT) - 1)
    drafter = make("llma")
    run = write([seq], Reciter(text, 500), drafter, k=8)
    assert seq.tokens == text
    assert run.tokens_per_pass >= 4
    assert all(not state for state in states(drafter).values())


def test_without_references_there_is_one_token_a_pass_and_nothing_drafted():
    seq = sequence(DOCUMENT[:4], max_tokens=40)
    run = write([seq], Reciter(DOCUMENT * 2, 500), make("llma"), k=8)
    assert run.passes == 40
    assert sum(event.num_draft_tokens for event in run.events) == 0


def test_longest_match_then_first_document():
    first, second = [9, 5, 1, 8, 5, 2], [7, 4, 5, 3]
    assert guess([4, 5], [first, second]).tokens.tolist() == [5, 3]  # two tokens agree with the second
    assert guess([6, 5], [first, second]).tokens.tolist() == [5, 2]  # one with both; the latest place in the first
    assert guess([6, 5], [first, second], width=3, depth=1).tokens.tolist() == [5, 2, 1, 3]


def test_the_prompt_is_no_reference_unless_asked():
    prompt = [1, 2, 3, 1, 2]
    assert guess(prompt, []).num_nodes == 1
    assert guess(prompt, [], index_output=True).tokens.tolist() == [2, 3, 1, 2]
    assert guess(prompt, [[8, 1, 2, 9]], index_output=True).tokens.tolist() == [2, 3, 1, 2]
    assert guess([*prompt, 7, 8, 1, 2], [[7, 8, 1, 2, 9]], index_output=True).tokens.tolist() == [2, 9]


def test_a_short_match_can_be_too_short():
    assert guess([6, 5], [DOCUMENT, [5, 3]], min_ngram=2).num_nodes == 1
    assert guess([6, 5], [DOCUMENT, [5, 3]]).num_nodes == 2


@pytest.mark.parametrize("bad", [{"min_ngram": 0}, {"trigger": 6}, {"width": 0}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=r"min_ngram|width"):
        make("llma", **bad)
