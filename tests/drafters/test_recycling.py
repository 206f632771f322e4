"""Token recycling: the template's shape, rows equal to the logits' best, unseen subtrees left out, a second request."""

import random

import numpy as np
import pytest
import torch
from drafters.drafting import make, sequence, write

from outdraft.core.draft import chain
from outdraft.core.drafter import Seen
from outdraft.core.policy import Budget
from outdraft.drafters.recycling import RecyclingOptions, share, template
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES
from tests.helpers.table_target import TableTarget

VOCAB = 40


class Port:
    """All that the drafter asks of the target."""

    def __init__(self, vocab_size=VOCAB):
        self.vocab_size = vocab_size


def draft(drafter, token, depth=6, nodes=None):
    return drafter.propose([sequence([1, token])], [Budget(depth=depth, nodes=nodes)])[0]


def matrix_of(drafter):
    """That of requests without a salt."""
    return drafter._matrices.of(sequence([1]))


def depths(parents):
    found = [0]
    for parent in parents[1:]:
        found.append(found[parent] + 1)
    return found


def test_the_template_has_the_published_levels():
    tree = template((8, 21, 25, 15, 8, 3), 8)
    assert np.bincount(depths(tree.parents)).tolist() == [1, 8, 21, 25, 15, 8, 3]
    assert tree.ends == (1, 9, 30, 55, 70, 78, 81)
    children = list(zip(tree.parents.tolist(), tree.ranks.tolist(), strict=True))
    assert len(set(children)) == 81
    assert sorted(tree.places) == list(range(81))
    assert all(tree.places[parent] < tree.places[node] for node, (parent, _) in enumerate(children) if node)
    for parent, rank in children[1:]:  # a sibling of a better rank is there too
        assert rank == 0 or (parent, rank - 1) in children


def test_a_level_that_cannot_be_filled_is_smaller():
    assert template((8, 21), 2).ends == (1, 3, 7)


def test_rows_equal_the_best_logits_after_one_pass():
    target, drafter = TableTarget(vocab_size=VOCAB, seed=3), make("recycling", Port())
    observe, sizes, repeats = drafter.observe, [], 0

    def checked(seen):
        nonlocal repeats
        observe(seen)
        tokens = seen[0].draft.tokens.tolist()
        sizes.append(len(tokens))
        repeats += len(tokens) - len(set(tokens))
        last = {token: seen[0].logits[node] for node, token in enumerate(tokens)}  # in the order of depth
        for token, logits in last.items():
            assert matrix_of(drafter)[token].tolist() == logits.topk(8).indices.tolist()

    drafter.observe = checked
    for _ in range(2):
        write([sequence([5, 6, 7], max_tokens=20)], target, drafter, k=6)
    assert sizes[0] == 1 and max(sizes) > 40 and repeats  # nothing known at first; some tokens stood in several nodes


class OnDevice(torch.Tensor):
    """Tokens as a GPU drafter leaves them: the host must ask for them."""

    def numpy(self):
        raise TypeError("not on the host")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_it_learns_from_another_drafters_guess_on_a_gpu():
    drafter, logits = make("recycling", Port()), torch.randn(2, VOCAB)
    guess = chain(torch.tensor([3, 4]).as_subclass(OnDevice))
    drafter.observe([Seen(seq=sequence([1, 3]), start=0, num_committed=1, draft=guess, logits=logits)])
    assert matrix_of(drafter)[3].tolist() == logits[0].topk(8).indices.tolist()


def test_unseen_rows_are_left_out():
    drafter = make("recycling", Port())
    assert draft(drafter, 2).num_nodes == 1
    matrix_of(drafter)[2] = range(10, 18)
    assert draft(drafter, 2).tokens.tolist() == [2, *range(10, 18)]
    matrix_of(drafter)[11] = range(20, 28)
    found = draft(drafter, 2)
    below = [i for i, parent in enumerate(found.parents.tolist()) if parent == 2]
    assert found.tokens[below].tolist() == list(range(20, 20 + len(below))) and below
    assert found.num_nodes == 9 + len(below)


def test_budgets_keep_the_most_promising_nodes():
    drafter = make("recycling", Port())
    matrix_of(drafter)[:VOCAB] = np.random.default_rng(1).random((VOCAB, VOCAB)).argsort(-1)[:, :8]
    whole = draft(drafter, 2)
    assert whole.num_nodes == 81
    assert draft(drafter, 2, depth=2).num_nodes == 30
    for nodes in (0, 1, 5, 40):
        found = draft(drafter, 2, nodes=nodes)
        assert found.num_nodes == nodes + 1
        for node, parent in enumerate(found.parents.tolist()[1:], 1):
            assert parent < node and found.tokens[node] in matrix_of(drafter)[found.tokens[parent]]
    assert draft(drafter, 2, nodes=1).tokens[1] == matrix_of(drafter)[2, 0]
    near_the_end = sequence([1, 2], max_len=5)
    assert drafter.propose([near_the_end], [Budget(depth=6)])[0].num_nodes == 4


def promises(drafter, found):
    """Of each node but the pending one: the product of the shares of the ranks on its path, best first."""
    tokens, made = found.tokens.tolist(), [1.0]
    for token, parent in zip(tokens[1:], found.parents.tolist()[1:], strict=True):
        made.append(made[parent] * share(matrix_of(drafter)[tokens[parent]].tolist().index(token)))
    return sorted(made[1:], reverse=True)


@pytest.mark.parametrize("seen", [range(VOCAB), range(0, VOCAB, 3)], ids=["all", "a third"])
def test_a_node_budget_keeps_the_most_promising_of_the_seen(seen):
    drafter = make("recycling", Port())
    matrix_of(drafter)[list(seen)] = np.random.default_rng(1).random((len(seen), VOCAB)).argsort(-1)[:, :8]
    whole = promises(drafter, draft(drafter, seen[1]))
    assert len(whole) > 10 and len(set(whole)) > 5
    for nodes in range(len(whole) + 1):
        assert promises(drafter, draft(drafter, seen[1], nodes=nodes)) == pytest.approx(whole[:nodes])


def test_forgetting_leaves_nothing_to_guess_from():
    target, drafter = TableTarget(vocab_size=VOCAB, seed=3), make("recycling", Port())
    write([sequence([5, 6, 7], max_tokens=20)], target, drafter, k=6)
    assert any(draft(drafter, token).num_nodes > 1 for token in range(VOCAB))
    drafter.traits.forget()
    assert all(draft(drafter, token).num_nodes == 1 for token in range(VOCAB))


def test_the_second_request_takes_few_passes():
    """A target that walks once round all its tokens: no row is of use before the walk begins again."""
    target = TableTarget(vocab_size=200, order=1, max_len=400)
    order = random.Random(1).sample(range(200), 200)
    target.table[order, order[1:] + order[:1]] += 20
    drafter = make("recycling", Port(200))
    first, second = (write([sequence(order[:2], max_tokens=150)], target, drafter, k=6) for _ in range(2))
    assert second.passes < 0.6 * first.passes
    assert second.tokens_per_pass >= 5


@pytest.mark.parametrize("bad", [{"width": 0}, {"levels": ()}, {"levels": (3, 0)}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("recycling", Port(), **bad)


def test_what_follows_the_last_token_of_the_vocabulary_follows_no_other():
    drafter, last = make("recycling", Port(4), width=2, levels=(2, 2)), sequence([1, 3])
    logits = torch.tensor([[0.0, 2.0, 1.0, 0.0]])
    drafter.observe([Seen(seq=last, start=0, num_committed=1, draft=chain([3]), logits=logits)])
    assert draft(drafter, 3).tokens.tolist() == [3, 1, 2]  # nothing is known of 1 and 2
    assert draft(drafter, 0).tokens.tolist() == [0]


def test_a_tree_has_at_most_so_many_nodes():
    assert sum(RecyclingOptions(levels=(MOST_NODES - 1, 1)).levels) == MOST_NODES
    with pytest.raises(ConfigError, match="levels"):
        RecyclingOptions(levels=(MOST_NODES, 1))
