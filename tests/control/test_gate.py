"""Guesses that end where the next token no longer pays: in a world whose drafter says how sure it is, and may lie."""

import random

import pytest
from control.world import drive, judged, sequence

from outdraft.control.auto.gate import ended_costs, least_survival
from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.control.auto.trials import TRIALS
from outdraft.core.events import StepTimes
from outdraft.core.policy import Arm
from outdraft.options.speculative import Settled

PASSES = (0, 1.0, 1.07, 1.18, 1.3, 1.7, 1.95, 2.2, 2.45, 2.7)  # by rows: those beyond the fourth cost more


class SureWorld:
    """Tokens of two kinds, a sure one and an unsure one, each accepted with its chance; a draft step costs `step`."""

    def __init__(self, sure=0.95, unsure=0.25, share=0.65, cost=0.11):
        self.chances, self.share, self.cost, self.dice = (sure, unsure), share, cost, random.Random(3)

    def pass_cost(self, rows):
        return PASSES[rows] if rows < len(PASSES) else PASSES[-1] + 0.25 * (rows - len(PASSES) + 1)

    def step(self, seqs, budgets, number):
        (seq,), (budget,) = seqs, budgets
        drafted, survival, accepted, alive = 0, 1.0, 0, True
        while drafted < budget.depth and survival >= budget.survival:
            chance = self.chances[self.dice.random() > self.share]
            drafted, survival = drafted + 1, survival * chance
            alive = alive and self.dice.random() < chance
            accepted += alive
        times = StepTimes(draft=self.cost * drafted, target=self.pass_cost(1 + drafted))
        return [judged(seq, drafted, accepted, times)]


def auto(ends_early):
    return AutoPolicy(AutoOptions(), [Arm(name="one", ends_early=ends_early)])


@pytest.mark.parametrize("unsure, share, least", [(0.25, 0.65, 1.04), (0.1, 0.5, 1.06), (0.3, 0.3, 0.98)])
def test_a_guess_that_ends_early_brings_more(unsure, share, least):
    rates = {ends: drive(auto(ends), SureWorld(unsure=unsure, share=share), 4000).rate(200) for ends in (False, True)}
    assert rates[True] > least * rates[False]


def test_a_drafter_that_is_always_sure_loses_nothing():
    rates = {ends: drive(auto(ends), SureWorld(share=1.0), 3000).rate(200) for ends in (False, True)}
    assert rates[True] == pytest.approx(rates[False], rel=0.02)


def test_trials_and_what_a_request_asks_for_are_whole():
    policy, asks = auto(True), sequence(1)
    asks.settled = Settled(arm=0, depth=3)
    trials = drive(policy, SureWorld(), 40).budgets
    assert [budget.depth for (budget,) in trials[: len(TRIALS)]] == list(TRIALS)
    assert all(budget.survival == 0 for (budget,) in trials[: len(TRIALS)])
    assert any(budget.survival > 0 for (budget,) in trials)
    asked = drive(policy, SureWorld(), 40, [asks]).budgets
    assert {(budget.depth, budget.survival) for (budget,) in asked} == {(3, 0.0)}


def test_a_trial_that_comes_late_is_whole():
    """Short guesses leave no room for one."""
    policy = auto(True)
    short = drive(policy, SureWorld(), 200, [sequence(1, asks=2)]).budgets
    assert any(budget.survival > 0 for (budget,) in short)
    late = drive(policy, SureWorld(), len(TRIALS), [sequence(2)]).budgets
    assert {(budget.depth, budget.survival) for (budget,) in late} == {(depth, 0.0) for depth in TRIALS}


def test_an_arm_that_cannot_end_early_is_not_asked_to():
    assert all(budget.survival == 0 for (budget,) in drive(auto(False), SureWorld(), 100).budgets)


def test_the_least_chance_is_what_a_token_costs():
    costs = {"draft_cost": lambda depth: 0.5 * depth, "pass_cost": lambda rows: 3.6 + 0.4 * rows, "count": 1}
    assert least_survival(0.3, 3, **costs) == pytest.approx(0.3 * 0.9)
    assert least_survival(9.0, 3, **costs) == 0.6
    falling = {"draft_cost": lambda depth: 0.0, "pass_cost": lambda rows: 5.0 - rows, "count": 1}
    assert least_survival(0.3, 3, **falling) == 0


def test_a_step_of_the_curve_counts_for_those_beyond_it():
    drafting, passing = ended_costs(
        lambda depth: 0.2 * depth, lambda rows: PASSES[round(rows)], lambda depth: 0.5 * depth, 1
    )
    assert passing(1) == 1.0
    assert passing(5) == pytest.approx(1.35)
    assert drafting(4) == pytest.approx(0.4)
    _, of_two = ended_costs(lambda depth: 0.2, lambda rows: PASSES[round(rows)], lambda depth: 0.5 * depth, 2)
    assert of_two(2) == PASSES[2] and of_two(4) == pytest.approx((PASSES[2] + PASSES[4]) / 2)
