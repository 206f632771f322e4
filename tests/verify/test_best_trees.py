"""The dynamic programme equals brute force over all small trees; the chosen size costs least a token."""

from functools import cache

import numpy as np
import pytest

from outdraft.verify.shared.best_trees import BestTrees, choose_size

RATES = (0.55, 0.2, 0.1, 0.04)


@cache
def trees(size, depth):
    """Every ordered tree of `size` nodes and at most this depth, as nested tuples of children."""
    return [()] if size == 1 else forests(size - 1, depth - 1) if depth > 0 else []


@cache
def forests(size, depth):
    if size == 0:
        return [()]
    return [
        (first, *rest) for n in range(1, size + 1) for first in trees(n, depth) for rest in forests(size - n, depth)
    ]


def tokens(tree, rates):
    if len(tree) > len(rates):
        return -np.inf
    return 1 + sum(rates[rank] * tokens(child, rates) for rank, child in enumerate(tree))


def nested(topology, node=0):
    return tuple(nested(topology, child) for child in topology[node])


@pytest.mark.parametrize("rates", [RATES, (0.9,), (0.5, 0.3), (0.3, 0.3, 0.3), (0.1, 0.4, 0.2)])
def test_equals_brute_force(rates):
    best = BestTrees(rates, max_nodes=8, max_depth=4)
    for depth in range(5):
        for size in range(1, 9):
            wanted = max((tokens(tree, rates) for tree in trees(size, depth)), default=-np.inf)
            assert best.values[depth, size] == pytest.approx(wanted), (depth, size)
            if wanted > 0:
                topology = best.tree(size, depth)
                assert nested(topology) in trees(size, depth) and len(topology) == size
                assert tokens(nested(topology), rates) == pytest.approx(wanted)
    assert (best.values[:, 0] == -np.inf).all()


def test_a_rank_that_is_never_accepted_brings_nothing():
    best = BestTrees((0.5, 0.0), max_nodes=5, max_depth=2)
    assert list(best.values[1]) == [-np.inf, 1, 1.5, 1.5, -np.inf, -np.inf]
    assert list(best.values[2]) == [-np.inf, 1, 1.5, 1.75, 1.75, 1.75]


def test_parents_come_first_and_no_node_is_lost():
    topology = BestTrees(RATES, max_nodes=20, max_depth=6).tree(20, 6)
    assert sorted(child for children in topology for child in children) == list(range(1, 20))
    assert all(child > node for node, children in enumerate(topology) for child in children)


def costs(draft, slope, levels, most):
    """Of drafting 0 .. `levels` levels, and of passes over 0 .. `most` nodes."""
    return [draft * d for d in range(levels + 1)], [np.inf, *(1 + slope * m for m in range(most))]


def test_size_has_the_least_cost_a_token():
    best, chosen = BestTrees(RATES, max_nodes=17, max_depth=5), set()
    for draft in (0.01, 0.1, 0.5, 0.7):
        for slope in (0.0, 0.05, 0.5):
            drafts, passes = costs(draft, slope, 5, 17)
            ratios = {
                (m, d): (drafts[d] + passes[m]) / best.values[d, m]
                for d in range(6)
                for m in range(1, 18)
                if best.values[d, m] > 0
            }
            chosen.add(choose_size(best, drafts, passes))
            assert ratios[choose_size(best, drafts, passes)] == pytest.approx(min(ratios.values()))
            drafts[0] = passes[1] = np.inf
            assert min(choose_size(best, drafts, passes)) > 0  # plain decoding is forbidden
    assert (1, 0) in chosen and len(chosen) > 6


def test_dearer_rows_make_smaller_trees():
    best = BestTrees(RATES, max_nodes=33, max_depth=8)
    sizes = [choose_size(best, *costs(0.05, slope, 8, 33))[0] for slope in (0.0, 0.02, 0.1, 0.5)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 3 * sizes[-1]
