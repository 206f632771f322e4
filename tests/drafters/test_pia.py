"""PIA's trie: counts, decay, the prompt beside the outputs of all, and a bound on memory."""

import random
from collections import Counter

import pytest
from drafters.drafting import Reciter, make, sequence, states, write

from outdraft.core.policy import Budget
from outdraft.drafters.pia import BranchTrie
from outdraft.options.errors import ConfigError


def test_counts_equal_a_recount_and_decay_halves_them():
    rng, trie, counts = random.Random(4), BranchTrie(), Counter()
    for _ in range(200):
        branch = rng.choices(range(3), k=rng.randrange(1, 6))
        trie.put(branch)
        counts.update(tuple(branch[: i + 1]) for i in range(len(branch)))
    assert trie.num_nodes == len(counts)
    assert all(trie.find(span).count == count for span, count in counts.items())
    trie.decay(0.5)
    kept = {span: count / 2 for span, count in counts.items() if count >= 2}
    assert trie.num_nodes == len(kept)
    assert all(trie.find(span).count == count for span, count in kept.items())
    assert all(trie.find(span) is None for span in set(counts) - set(kept))


def guess(drafter, tokens, depth=4, nodes=None, references=()):
    seq = sequence(tokens)
    object.__setattr__(seq.request, "references", references)
    drafter.begin([seq])
    return drafter.propose([seq], [Budget(depth=depth, nodes=nodes)])[0]


def outputs_of(drafter):
    """The trie of requests without a salt."""
    return drafter._outputs.of(sequence([1]))


def finish(drafter, output):
    seq = sequence([0])
    drafter.begin([seq])
    seq.tokens += output
    seq.finish_reason = "length"
    drafter.end([seq])


def counts_of(drafter):
    """How often each span of an output has been entered."""
    found, todo = {}, [((), outputs_of(drafter)._root)]
    while todo:
        span, node = todo.pop()
        found[span] = node.count
        todo += [((*span, token), child) for token, child in node.children.items()]
    return found


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_text_that_begins_again_is_counted_once(times):
    output = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    whole, again = make("pia", branch=4, max_match=2), make("pia", branch=4, max_match=2)
    finish(whole, output)
    seq = sequence([0])
    for at in range(times):
        again.begin([seq])
        seq.tokens += output[at * 3 : at * 3 + 3]
        again.propose([seq], [Budget(depth=2)])
        again.end([seq])
    again.begin([seq])
    seq.tokens += output[times * 3 :]
    seq.finish_reason = "length"
    again.end([seq])
    assert counts_of(again) == counts_of(whole) and counts_of(whole)[1, 2, 3] == 2


def test_prompt_and_outputs_are_merged_by_weight():
    drafter = make("pia")
    for output in ([1, 2, 3], [1, 2, 4], [1, 2, 4], [1, 2, 4]):
        finish(drafter, output)
    draft = guess(drafter, [1, 2, 3, 8, 1, 2])  # 3: 2 * 1 + 1, 8 and 1 below it; 4: 3
    assert draft.tokens.tolist()[:3] == [2, 3, 4] and draft.parents.tolist()[:3] == [-1, 0, 0]
    assert guess(drafter, [1, 2, 3, 8, 1, 2], nodes=1).tokens.tolist() == [2, 3]
    assert guess(make("pia", prompt_weight=0.0), [1, 2, 3, 1, 2], depth=1).num_nodes == 2
    assert guess(drafter, [0, 9, 1, 2], references=((7, 1, 2, 5, 6),)).tokens.tolist().count(5) == 1


def test_budgets():
    drafter = make("pia")
    finish(drafter, [1, 2, 3, 4, 5, 6])
    assert guess(drafter, [1, 2], depth=0).num_nodes == guess(drafter, [1, 2], nodes=0).num_nodes == 1
    assert guess(drafter, [1, 2], depth=2).tokens.tolist() == [2, 3, 4]
    assert guess(drafter, [1, 2], nodes=3).tokens.tolist() == [2, 3, 4, 5]
    assert guess(drafter, [1]).num_nodes == 1


def test_branches_are_cut_to_their_length_and_enter_when_they_are_whole():
    drafter = make("pia", branch=5, min_match=1, max_match=2)
    seq = sequence([0])
    drafter.begin([seq])
    for token, whole in ((1, 0), (2, 0), (3, 0), (4, 0), (5, 5), (6, 10)):
        seq.tokens.append(token)
        drafter.propose([seq], [Budget(depth=2)])
        assert outputs_of(drafter).num_nodes == whole
    finish(drafter, list(range(20, 40)))
    for start in range(20, 35):
        branch = list(range(start, start + 6))
        assert outputs_of(drafter).find(branch[:5]) is not None and outputs_of(drafter).find(branch) is None


def test_a_guess_is_no_deeper_than_its_budget():
    text = list(range(330))
    deep = guess(make("pia", branch=400, nodes=4096), [*text, 0, 1], depth=300)
    assert deep.tokens.tolist() == text[1:302]


def test_outputs_are_shared_while_they_are_written():
    text = random.Random(1).choices(range(300), k=30) * 6
    drafter = make("pia")
    run = write([sequence(text[:2], max_tokens=150)], Reciter(text, 300), drafter, k=8)
    late = [e for e in run.events if e.tokens][42:]  # a branch is known once it is complete
    assert sum(len(e.tokens) for e in late) / len(late) >= 7
    again = write([sequence(text[:2], max_tokens=150)], Reciter(text, 300), drafter, k=8)
    assert again.passes < 0.5 * run.passes
    assert all(not d for d in states(drafter).values())


def test_the_trie_stays_within_its_bound():
    rng = random.Random(3)
    drafter = make("pia", branch=5, max_nodes=200)
    for _ in range(50):
        finish(drafter, rng.choices(range(50), k=60))
        assert outputs_of(drafter).num_nodes <= 200


@pytest.mark.parametrize(
    "bad",
    [{"min_match": 0}, {"max_match": 12}, {"nodes": 0}, {"decay": 1.0}, {"prompt_weight": -1.0}, {"max_nodes": 3}],
)
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("pia", **bad)
