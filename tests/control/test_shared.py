"""What policies are made of: measured curves, hazards that forget, the speed-up formulas."""

import random

import pytest
from control.world import sequence

from outdraft.analysis.theory import best_length
from outdraft.control.shared.acceptance import Hazards
from outdraft.control.shared.costs import Choice, Costs
from outdraft.control.shared.curve import Curve
from outdraft.control.shared.limits import allowed
from outdraft.control.shared.speedup import best_depth
from outdraft.core.events import StepEvent, StepTimes

# METHODS.md section 3: best length and speed-up for c and alpha, checked against brute force there.
TABLE = {
    0.02: [(4, 1.79), (6, 2.17), (8, 2.76), (11, 3.82), (19, 6.37)],
    0.05: [(3, 1.63), (4, 1.92), (6, 2.35), (8, 3.09), (13, 4.67)],
    0.10: [(2, 1.46), (3, 1.67), (4, 1.98), (6, 2.47), (10, 3.43)],
    0.20: [(1, 1.25), (2, 1.40), (3, 1.58), (4, 1.87), (7, 2.37)],
    0.30: [(1, 1.15), (1, 1.23), (2, 1.37), (3, 1.55), (5, 1.87)],
}


def constant(alpha, deepest=40):
    return [alpha**k for k in range(1, deepest + 1)]


@pytest.mark.parametrize("cost", TABLE)
def test_the_known_optima(cost):
    for alpha, (depth, rate) in zip((0.5, 0.6, 0.7, 0.8, 0.9), TABLE[cost], strict=True):
        found = best_depth(constant(alpha), draft_cost=lambda k: cost * k, pass_cost=lambda rows: 1.0)
        assert found[0] == depth and found[1] == pytest.approx(rate, abs=0.006)


def test_equals_brute_force_with_a_measured_pass():
    dice = random.Random(1)
    for _ in range(300):
        alpha, cost, slope = dice.random(), dice.random() / 2, dice.random() / 5
        passing = lambda rows, slope=slope: 1 + slope * (rows - 1)  # noqa: E731
        wanted = best_length(alpha, draft_cost=cost, pass_cost=passing, longest=16)
        found, _ = best_depth(constant(alpha, 16), draft_cost=lambda k, cost=cost: cost * k, pass_cost=passing)
        assert found == wanted


def test_nothing_is_drafted_where_alpha_is_less_than_c():
    for alpha in (0.0, 0.1, 0.3, 0.6):
        for cost in (0.02, 0.2, 0.4, 0.7):
            depth, _ = best_depth(constant(alpha), draft_cost=lambda k, c=cost: c * k, pass_cost=lambda rows: 1.0)
            assert (depth == 0) == (alpha < cost)


def test_a_dent_in_a_curve_is_no_top():
    pass_cost = {1: 1.0, 2: 1.0, 3: 1.6, 4: 1.0, 5: 1.0}.get
    assert best_depth([0.9, 0.8, 0.7, 0.6], draft_cost=lambda k: 0.01 * k, pass_cost=pass_cost)[0] == 4


def test_a_curve_learns_kinks_noise_and_drift():
    dice, curve = random.Random(2), Curve(0.98, 0.02)
    assert not curve.is_measured and curve(1) == 0

    def truth(x):
        return 2.0 * (1 + 0.01 * x if x < 10 else 1.6)

    for _ in range(400):
        x = dice.choice([1, 3, 5, 9, 12])
        curve.add(x, truth(x) * dice.uniform(0.95, 1.05) * (10 if dice.random() < 0.01 else 1))
    for x in (1, 3, 5, 9, 12):
        assert curve(x) == pytest.approx(truth(x), rel=0.1)
    assert truth(5) * 0.9 < curve(7) < truth(12)  # never measured: between its neighbours
    for _ in range(60):
        curve.add(9, 2 * truth(9))  # the machine is twice as slow now, for all rows
    assert 1.6 * truth(1) < curve(1) < 2.2 * truth(1)


def test_hazards_are_those_of_the_rounds():
    hazards, plan = Hazards(1e9), [(4, 4), (4, 0), (4, 2), (2, 2), (3, 1)]
    for depth, accepted in plan:
        hazards.add(depth, accepted)
    stops, reached = [1, 1, 1, 0], [5, 4, 2, 1]
    rate = (3 + 1) / (4 + 1 + 3 + 2 + 2 + 4)
    wanted = [(s + 4 * rate) / (r + 4) for s, r in zip(stops, reached, strict=True)]
    assert hazards.hazards(4) == pytest.approx(wanted) and hazards.hazards(5)[4] == pytest.approx(rate)
    assert hazards.survivals(2)[1] == pytest.approx((1 - wanted[0]) * (1 - wanted[1]))


def test_hazards_forget_and_lean_on_others():
    common, dice = Hazards(200), random.Random(3)
    own = Hazards(32, common)
    for _ in range(300):
        common.add(4, 0)
    assert own.survivals(1)[0] < 0.1  # nothing of its own yet
    for _ in range(100):
        own.add(4, next((i for i in range(4) if dice.random() > 0.9), 4))
    assert own.survivals(1)[0] > 0.8
    for _ in range(40):
        own.add(1, 0)
    assert own.survivals(1)[0] < 0.35
    for _ in range(20_000):  # weights begin anew before they overflow
        own.add(2, 1)
    assert own.hazards(2)[0] < 0.08 < 0.8 < own.hazards(2)[1]


def event(seq, *, rows, draft=0.0, target=1.0, certain=0, tokens=1):
    times = StepTimes(draft=draft, target=target)
    return StepEvent(seq_id=seq, tokens=(1,) * tokens, num_nodes=rows, num_certain=certain, times=times)


def test_costs_belong_to_the_batch_and_catching_up_is_told_apart():
    costs = Costs(2)
    costs.add([event(0, rows=1, certain=500, target=9.0)], {})  # a prompt: no pass of a round
    for _ in range(5):
        costs.add([event(0, rows=5, draft=0.2), event(1, rows=3, draft=0.2)], {0: Choice(0, 4), 1: Choice(0, 2)})
    assert costs.passes(8) == pytest.approx(2.0) and costs.drafts[0](4) == pytest.approx(0.4)
    assert not costs.drafts[1].is_measured
    costs = Costs(1)
    for _ in range(4):
        costs.add([event(0, rows=3, draft=0.1)], {0: Choice(0, 2)})
    for _ in range(50):
        costs.add([event(0, rows=1)], {0: Choice(0, 0)})
    assert costs.catch_up(0, 0) == 0.0  # what a missed token costs is not known yet
    costs.add([event(0, rows=3, draft=5.125)], {0: Choice(0, 2)})
    assert costs.drafts[0](2) == pytest.approx(0.1)
    costs.add([event(0, rows=1, tokens=20)], {0: Choice(0, 0)})
    assert costs.catch_up(0, 0) == pytest.approx(20 * 0.1)
    costs.forget(0)
    assert costs.catch_up(0, 0) == 0.0


def test_a_request_limits_every_policy():
    assert allowed(sequence(asks=3), 8) == 3 and allowed(sequence(asks=0), 8) == 0 and allowed(sequence(), 8) == 8
    assert allowed(sequence(asks=9), 8) == 8 and allowed(sequence(max_tokens=4), 8) == 3
