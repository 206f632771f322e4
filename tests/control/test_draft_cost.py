"""Drafting costs by the number of sequences: kinds of crowds are learned apart, and what is not known is hoped for."""

import json

import pytest
from control.world import ARMS

from outdraft.control.shared.costs import ArmDepth, MeasuredCosts
from outdraft.control.shared.curve import DraftCost
from outdraft.control.shared.speedup import divide_depths
from outdraft.core.events import StepEvent, StepTimes


def looked_up(crowd):
    """A hundredth of a second for each sequence."""
    return 0.01 * crowd


def taught(*crowds, rounds=8):
    cost = DraftCost()
    for crowd in crowds:
        for _ in range(rounds):
            cost.add(4, looked_up(crowd), crowd)
    return cost


def test_a_large_batch_does_not_make_a_single_text_dear():
    cost = taught(32)
    assert cost(4, 32) == pytest.approx(0.32, rel=0.05)
    assert cost(4, 1) == pytest.approx(0.01, rel=0.05) and cost.of(1)(4) == cost(4, 1)
    assert cost.quick(4) == pytest.approx(0.01, rel=0.05)


def test_what_was_slow_once_may_be_quick():
    cost = taught(1)
    for _ in range(30):
        cost.add(4, 0.5)
    assert cost(4) > 0.3 and cost.quick(4) == pytest.approx(0.02)


def test_each_kind_of_crowd_has_its_own_measurements():
    cost = taught(1, 32)
    for _ in range(20):
        cost.add(4, 0.02, 1)
    assert cost(4, 1) == pytest.approx(0.02, rel=0.1) and cost(4, 40) == pytest.approx(0.32, rel=0.05)
    cost.scale(3.0)
    assert cost(4, 1) == pytest.approx(0.06, rel=0.1) and cost(4, 40) == pytest.approx(0.96, rel=0.05)


def test_a_larger_crowd_is_hoped_to_cost_no_more():
    assert taught(1)(4, 16) == taught(1)(4, 1)
    assert taught(1, 8)(4, 16) == taught(8)(4, 8), "the nearest kind says it"


def test_nothing_is_known_at_first():
    cost = DraftCost()
    assert not cost.is_measured and cost(4) == cost.of(3)(4) == cost.quick(4) == 0.0
    cost.add(4, 0.0)
    assert not cost.is_measured


def test_it_is_kept_by_kind():
    cost = taught(1, 32)
    again = DraftCost.recalled(json.loads(json.dumps(cost.kept())))
    assert again(4, 32) == pytest.approx(cost(4, 32)) and again(4, 1) == pytest.approx(cost(4, 1))
    for damaged in (
        {"0": cost.kept()["1"]},
        {"99": cost.kept()["1"]},
        {"level": 3.0},
        {"1": {"level": 0, "shapes": []}},
        {"1": {"level": 1.0, "shapes": [[0, 1.0, 3], [2, 1.0, 3]]}},
    ):
        with pytest.raises((ValueError, KeyError, TypeError)):
            DraftCost.recalled(damaged)


def test_a_step_says_for_how_many_each_arm_guessed():
    costs = MeasuredCosts(ARMS[:2])
    events = [StepEvent(seq_id=i, tokens=(1,), num_nodes=3, times=StepTimes(draft=0.01, target=0.1)) for i in range(8)]
    for _ in range(6):
        costs.add(events, {i: ArmDepth(0, 2) for i in range(8)})
    assert costs.drafts[0](2, 8) == pytest.approx(0.08) and costs.drafts[0](2, 1) == pytest.approx(0.01)


def test_a_batch_pays_for_those_that_guess():
    """One text of eight repeats itself: its guess alone pays, though guesses for all would not."""
    survivals = [[0.9, 0.8], *([[0.05, 0.0]] * 7)]
    for cost, wanted in ((lambda k, n: 0.05 * n, 2), (lambda k, n: 0.4, 0)):
        depths, _ = divide_depths(
            survivals, [0] * 8, draft_costs=[cost], pass_cost=lambda rows: 1 + 0.01 * rows, nodes=[float] * 8
        )
        assert depths == [wanted, *([0] * 7)]
