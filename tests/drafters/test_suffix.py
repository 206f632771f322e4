"""Suffix decoding: agents that repeat themselves, answers remembered and forgotten, silence on random text."""

import random

import pytest
from drafters.drafting import Reciter, make, sequence, states, write

from outdraft.core.calibration import Calibration, Knot
from outdraft.core.policy import Budget
from outdraft.options.errors import ConfigError

VOCAB = 400


def tool_output(seed, size=120):
    return random.Random(seed).choices(range(VOCAB), k=size)


def test_agentic_replay():
    """The same tool output twice in a session, and the next request has it again: six tokens a pass and more."""
    log = tool_output(1)
    drafter = make("suffix")
    first = [3, 1, *log, 4, 1, *log, 5]
    run = write([sequence(first[:2], max_tokens=400)], Reciter(first, VOCAB), drafter, k=16)
    late = [e for e in run.events if e.tokens][len(log) :]
    assert sum(len(e.tokens) for e in late) / len(late) >= 6
    second = [9, 8, *log, 7]
    prompt = sequence(second[:2], max_tokens=len(log) + 1)
    again = write([prompt], Reciter(second, VOCAB), drafter, k=16)
    assert prompt.tokens == second and again.tokens_per_pass >= 6
    assert all(not d for d in states(drafter).values())


def test_random_text_is_left_alone():
    rng = random.Random(2)
    text = rng.choices(range(VOCAB), k=600)
    run = write([sequence(text[:300], max_tokens=300)], Reciter(text, VOCAB), make("suffix"), k=16)
    drafted = sum(e.num_draft_tokens for e in run.events)
    accepted = sum(e.num_accepted for e in run.events)
    assert drafted <= 0.75 * 300 and accepted <= 10  # chance meetings of one token: one node each, no more


def guess(drafter, tokens, depth=8, **budget):
    seq = sequence(tokens)
    drafter.begin([seq])
    return drafter.propose([seq], [Budget(depth=depth, **budget)])[0]


def finish(drafter, output):
    seq = sequence([0])
    drafter.begin([seq])
    seq.tokens += output
    seq.finish_reason = "length"
    drafter.end([seq])


def test_a_text_that_gives_back_its_memory_is_no_finished_one():
    """It begins again with what it has written, which no other request observes before it is over."""
    drafter, seq = make("suffix"), sequence([0])
    for written in ([1, 2, 3], [4, 5]):
        drafter.begin([seq])
        seq.tokens += written
        drafter.end([seq])
    assert guess(drafter, [9, 1]).num_nodes == 1
    drafter.begin([seq])
    seq.finish_reason = "stop"
    drafter.end([seq])
    assert guess(drafter, [9, 3]).tokens.tolist() == [3, 4]
    assert drafter._earlier.of(seq).num_texts == 1


def test_the_better_score_wins_and_the_request_wins_ties():
    drafter = make("suffix", factor=3.0)
    finish(drafter, [1, 2, 3, 4, 5, 6])
    assert guess(drafter, [1, 2]).tokens.tolist() == [2, 3, 4, 5, 6]
    assert guess(drafter, [1, 2, 9, 9, 9, 9, 1, 2], depth=4).tokens.tolist() == [2, 9, 9, 9, 9]  # 4 expected in both


def test_outputs_are_forgotten_first_in_first_out():
    drafter = make("suffix", max_sequences=2)
    for output in ([1, 2, 3], [4, 5, 6], [7, 8, 9]):
        finish(drafter, output)
    assert guess(drafter, [0, 1]).num_nodes == 1
    assert guess(drafter, [0, 4]).tokens.tolist() == [4, 5]
    assert guess(drafter, [0, 7]).tokens.tolist() == [7, 8]


def test_prompts_are_not_remembered_and_nothing_is_with_no_room():
    drafter = make("suffix")
    finish(drafter, [])
    assert guess(drafter, [3, 0]).num_nodes == 1
    drafter = make("suffix", max_sequences=0)
    finish(drafter, [1, 2, 3])
    assert guess(drafter, [0, 1]).num_nodes == 1


def test_references_are_copied_from():
    drafter, seq = make("suffix"), sequence([9, 1, 2])
    object.__setattr__(seq.request, "references", ((5, 1, 2, 3, 4),))
    drafter.begin([seq])
    assert drafter.propose([seq], [Budget(depth=5)])[0].tokens.tolist() == [2, 3, 4]


def test_references_end_where_they_end():
    drafter, seq = make("suffix"), sequence([9, 1, 2])
    object.__setattr__(seq.request, "references", ((5, 1, 2), (3, 4)))
    drafter.begin([seq])
    assert drafter.propose([seq], [Budget(depth=5)])[0].num_nodes == 1


def test_budgets_and_confidence():
    drafter = make("suffix", factor=9.0)
    for output in ([1, 2, 3, 4, 5], [1, 2, 3, 6, 7], [1, 2, 3, 6, 8]):
        finish(drafter, output)
    draft = guess(drafter, [1, 2])
    assert draft.confidence.tolist() == pytest.approx([1, 1, 2 / 3, 1 / 3, 1 / 2, 1 / 2, 1])
    assert draft.tokens.tolist() == [2, 3, 6, 4, 7, 8, 5]
    assert guess(drafter, [1, 2], confidence=0.4).tokens.tolist() == [2, 3, 6, 4, 7, 8]  # 4 ends its branch
    assert guess(drafter, [1, 2], confidence=0.7).tokens.tolist() == [2, 3, 6, 4]
    assert guess(drafter, [1, 2], depth=0).num_nodes == guess(drafter, [1, 2], nodes=0).num_nodes == 1
    assert guess(drafter, [1, 2], depth=1).tokens.tolist() == [2, 3]
    assert guess(drafter, [1, 2], nodes=2).tokens.tolist() == [2, 3, 6]


def test_a_node_says_its_own_share_and_a_path_ends_by_their_product():
    """The first token is one of two and what follows it is certain: 1/2, then 1 for each."""
    drafter = make("suffix", factor=9.0)
    for output in ([1, 2, 3, 4, 5], [1, 6, 7, 8, 9]):
        finish(drafter, output)
    draft = guess(drafter, [0, 1])
    assert draft.tokens.tolist() == [1, 2, 6, 3, 7, 4, 8, 5, 9] and draft.parents.tolist() == [
        -1,
        0,
        0,
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert draft.confidence.tolist() == [1, 0.5, 0.5, 1, 1, 1, 1, 1, 1]
    assert guess(drafter, [0, 1], survival=0.5).num_nodes == 9
    assert guess(drafter, [0, 1], survival=0.6).tokens.tolist() == [1, 2, 6]
    surer = Calibration((Knot(0.5, 0.8), Knot(1.0, 1.0)))
    assert guess(drafter, [0, 1], survival=0.6, calibration=surer).num_nodes == 9


def test_a_chain_follows_the_most_frequent():
    drafter = make("suffix", factor=9.0, tree=False)
    for output in ([1, 2, 3, 4], [1, 2, 6, 7], [1, 2, 6, 7]):
        finish(drafter, output)
    assert guess(drafter, [1, 2]).tokens.tolist() == [2, 6, 7]


@pytest.mark.parametrize(
    "bad", [{"depth": 1}, {"nodes": 0}, {"max_sequences": -1}, {"min_prob": 1.5}, {"factor": -1.0}, {"factor": 0.0}]
)
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("suffix", **bad)
