"""Sequoia's search equals brute force over all small trees, and its choice follows what a pass costs."""

import random
from functools import cache

import numpy as np
import pytest
from control.world import sequence

from outdraft.control.hardware_tree.policy import HardwareTreeOptions, HardwareTreePolicy
from outdraft.control.hardware_tree.search import best_tokens
from outdraft.core.events import StepEvent, StepTimes


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


@pytest.mark.parametrize("rates", [(0.6, 0.2, 0.1), (0.5, 0.3), (0.9,), (0.4, 0.3, 0.2, 0.1)])
def test_the_search_equals_brute_force(rates):
    table = best_tokens(rates, 8, 4)
    for depth in range(5):
        for size in range(1, 9):
            every = [tokens(tree, rates) for tree in trees(size, depth)]
            assert table[depth, size] == pytest.approx(max(every, default=-np.inf)), (depth, size)
    assert (table[:, 0] == -np.inf).all()


def drive(policy, *, slope, ranks, draft=0.05, rounds=400, seed=0):
    """Rounds of a tree drafter: children of rank k are accepted with ranks[k]; bushy near the root."""
    dice, seq = random.Random(seed), sequence()
    for _ in range(rounds):
        (budget,) = policy.plan([seq])
        choices, accepted = [], 0
        for level in range(budget.depth):
            width = max(1, min(len(ranks), budget.nodes // (1 + level)))
            rank = next((k for k in range(width) if dice.random() < ranks[k] / (1 - sum(ranks[:k]))), width)
            choices.append((rank, width))
            if rank == width:
                break
            accepted += 1
        rows = 1 + (budget.nodes if budget.depth else 0)
        times = StepTimes(draft=draft * budget.depth, target=1 + slope * (rows - 1))
        policy.update([
            StepEvent(seq_id=0, tokens=(1,) * (accepted + 1), num_nodes=rows, draft_depth=budget.depth,
                      num_draft_tokens=rows - 1, num_accepted=accepted, choices=tuple(choices), times=times)
        ])  # fmt: skip
    return policy


RANKS = (0.55, 0.2, 0.1)


def test_rates_by_rank_are_measured():
    policy = drive(HardwareTreePolicy(HardwareTreeOptions()), slope=0.01, ranks=RANKS, rounds=1500)
    assert policy.rates[:3] == pytest.approx(RANKS, abs=0.06)
    assert all(rate >= later for rate, later in zip(policy.rates[3:], policy.rates[4:], strict=False))


def test_a_costly_row_makes_a_small_tree():
    sizes = [
        drive(HardwareTreePolicy(HardwareTreeOptions()), slope=slope, ranks=RANKS).nodes for slope in (0.0, 0.02, 0.2)
    ]
    assert sizes[0] == 48 > sizes[1] > sizes[2] >= 1


def test_nothing_where_nothing_pays():
    policy = drive(HardwareTreePolicy(HardwareTreeOptions()), slope=0.3, ranks=(0.05, 0.01), draft=0.3)
    assert policy.depth == 0 and policy.plan([sequence()])[0].depth == 0
