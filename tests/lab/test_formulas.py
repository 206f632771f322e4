"""The formulas that no command draws, against closed forms, counts by hand and simulation."""

import random

import pytest

from lab.analysis import formulas
from outdraft.analysis import theory


def test_chain_tree_and_positions_agree():
    chain = [-1, 0, 1, 2]
    assert formulas.expected_tree_tokens(chain, [1, 0.7, 0.7, 0.7]) == pytest.approx(theory.expected_tokens(0.7, 3))
    assert formulas.expected_tokens_by_position([0.7] * 3) == pytest.approx(theory.expected_tokens(0.7, 3))
    assert formulas.expected_tree_tokens([-1, 0, 0, 1], [1, 0.5, 0.3, 0.4]) == pytest.approx(1 + 0.5 + 0.3 + 0.2)


def test_a_cascade_costs_less_than_the_model_it_accelerates():
    inner = formulas.cascade_cost(0.6, 3, draft_cost=0.0, pass_cost=0.2)  # a free drafter under a model of c = 0.2
    assert inner == pytest.approx(0.2 / theory.expected_tokens(0.6, 3))
    k = theory.best_length(0.8, draft_cost=inner)
    assert theory.expected_speedup(0.8, k, draft_cost=inner) > 1.87  # of c = 0.2 alone


def test_overlapped_drafting():
    always = formulas.asynchronous_speedup(1.0, hit_tokens=4, miss_tokens=1, draft_time=0.8, backup_time=9)
    assert always == 4, "a draft that hides behind the pass is free"
    never = formulas.asynchronous_speedup(0.0, hit_tokens=9, miss_tokens=3, draft_time=0.8, backup_time=0.5)
    assert never == pytest.approx(3 / 1.5), "and without hits it is serial drafting"
    h, hit, miss = 0.7, 5.0, 3.0
    slow = formulas.asynchronous_speedup(h, hit_tokens=hit, miss_tokens=miss, draft_time=1.5, backup_time=0.3)
    assert slow == pytest.approx((h * hit + (1 - h) * miss) / (1.5 + (1 - h) * 0.3))


def test_alpha_is_found_whatever_the_length():
    rng = random.Random(2)
    for k in (1, 4, 9):
        rounds = []
        for _ in range(4000):
            accepted = next((i for i in range(k) if rng.random() >= 0.7), k)
            rounds.append((accepted, accepted < k))
        accepted, rejections = sum(a for a, _ in rounds), sum(end for _, end in rounds)
        assert theory.estimate_alpha(accepted, rejections) == pytest.approx(0.7, abs=0.02)
        found = formulas.hazards(*formulas.count_hazards(rounds))
        assert len(found) == k and all(hazard == pytest.approx(0.3, abs=0.06) for hazard in found)
    assert theory.estimate_alpha(0, 0) == 0


def test_hazards_by_hand_and_forgetting():
    rounds = [(2, True), (0, True), (3, False)]
    rejected, reached = formulas.count_hazards(rounds)
    assert (rejected, reached) == ([1, 0, 1], [3, 2, 2])
    assert formulas.hazards(rejected, reached) == [2 / 5, 1 / 4, 2 / 4]
    rejected, reached = formulas.count_hazards(rounds, forget=0.5)
    assert (rejected, reached) == ([0.5, 0, 0.25], [1.75, 1.25, 1.25])
