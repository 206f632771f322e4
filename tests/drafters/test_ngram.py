"""Look-up: the latest and longest match, repeats, tree of continuations, an index that equals brute force."""

import random

import pytest
from drafters.drafting import Reciter, make, sequence, states, write

from outdraft.core.policy import Budget
from outdraft.drafters.shared.look_up.ngram_index import NgramIndex
from outdraft.options.errors import ConfigError


def guess(tokens, depth=4, nodes=None, **options):
    drafter = make("ngram", **options)
    seq = sequence(tokens)
    drafter.begin([seq])
    return drafter.propose([seq], [Budget(depth=depth, nodes=nodes)])[0]


def test_repeated_block_is_copied():
    random.seed(1)
    block = random.sample(range(200), 40)
    text = block * 11
    drafter, target, seq = make("ngram"), Reciter(text, 200), sequence(block, max_tokens=400)

    def each_token_was_entered_once(live):
        for known in states(drafter)["_known"].values():
            assert known.index._text == seq.tokens[: len(known.index)]

    run = write([seq], target, drafter, k=10, each_step=each_token_was_entered_once)
    assert seq.tokens[: len(text)] == text
    late = [e for e in run.events if e.tokens][1:]
    assert sum(len(e.tokens) for e in late) / len(late) >= 5
    assert all(not d for d in states(drafter).values())


def test_latest_match_of_the_longest_suffix():
    #         1 2 7   1 2 8   9 2 5   1 2      longest suffix 1 2, latest occurrence is followed by 8
    assert guess([1, 2, 7, 1, 2, 8, 9, 2, 5, 1, 2]).tokens.tolist()[1:] == [8, 9, 2, 5]


def test_the_suffix_itself_is_no_match():
    assert guess([1, 2, 3]).num_nodes == 1


def test_short_continuations_are_kept():
    assert guess([4, 5, 6, 4, 5], depth=9, wrap=False).tokens.tolist() == [5, 6, 4, 5]


def test_a_loop_is_continued():
    assert guess([3, 1, 2, 1, 2], depth=6).tokens.tolist()[1:] == [1, 2, 1, 2, 1, 2]


def test_budgets():
    tokens = [1, 2, 3, 4, 5, 1, 2]
    assert guess(tokens, depth=0).num_nodes == 1
    assert guess(tokens, depth=2).num_nodes == 3
    assert guess(tokens, depth=4, nodes=1).num_nodes == 2
    assert guess(tokens, depth=4, nodes=0).num_nodes == 1
    assert guess([1, 2, 3, 1, 2, 4, 1, 2], depth=3, nodes=4, width=3).num_nodes == 5


def test_tree_merges_distinct_continuations():
    draft = guess([1, 2, 3, 4, 1, 2, 3, 5, 1, 2], depth=2, width=2, wrap=False)
    assert draft.tokens.tolist() == [2, 3, 5, 4]
    assert draft.parents.tolist() == [-1, 0, 1, 1]


def test_text_without_repeats_costs_nothing():
    text = list(range(60))
    seq = sequence(text[:5], max_tokens=40)
    run = write([seq], Reciter(text, 60), make("ngram"))
    assert run.passes == 40
    assert sum(e.num_draft_tokens for e in run.events) == 0


def test_index_equals_brute_force():
    random.seed(3)
    tokens, index = [], NgramIndex(1, 3)
    for _ in range(300):
        tokens.append(random.randrange(4))
        index.extend(tokens[-1:])
        for n in (1, 2, 3):
            if len(tokens) < n:
                continue
            found = [one.tokens for one in index.sequels(tokens, n, 2)]
            ends = range(len(tokens) - 1, n - 1, -1)
            assert found == [tokens[end : end + 2] for end in ends if tokens[end - n : end] == tokens[-n:]]


def test_continuations_stay_in_their_text():
    index = NgramIndex(1, 2)
    for text in ([1, 2, 3], [4, 1, 2], [5, 2, 6, 7]):
        index.extend(text)
        index.close()
    assert [found.tokens for found in index.lookup([9, 1, 2], 3)] == [[3], [6, 7], [3]]


@pytest.mark.parametrize("bad", [{"min_ngram": 0}, {"min_ngram": 4}, {"width": 0}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("ngram", **bad)
