"""Policies that measure: the estimator, the bandit, routing, the switch, and the depth schedules. Scripted clock."""

import math
import random
from itertools import pairwise

import pytest
from control.world import ARMS, World, drive, sequence

from outdraft.control.bandit import BanditOptions, BanditPolicy
from outdraft.control.estimator import EstimatorOptions, EstimatorPolicy
from outdraft.control.fixed import FixedOptions, FixedPolicy
from outdraft.control.heuristic import HeuristicOptions, HeuristicPolicy
from outdraft.control.history import HistoryOptions, HistoryPolicy
from outdraft.control.probe import ProbeOptions, ProbePolicy
from outdraft.control.routing import RoutingOptions, RoutingPolicy
from outdraft.options.errors import ConfigError

PHASE = 400


def two_phases(low=0.1, high=0.9, cost=0.05):
    return World([lambda number, seq: high if number // PHASE % 2 else low], [cost])


def score(run, world, burn):
    """Tokens over those of the oracle in the same seconds, after a burn-in in each phase."""
    made = sum(t / world.best(n)[0] for n, t in enumerate(run.tokens) if n % PHASE >= burn)
    return made / sum(s for n, s in enumerate(run.seconds) if n % PHASE >= burn)


def depths(run, start=0, stop=None):
    return [budget.depth for (budget,) in run.budgets[start:stop]]


def test_the_estimator_follows_two_phases():
    run = drive(EstimatorPolicy(EstimatorOptions(), ARMS[:1]), two_phases(), 12 * PHASE)
    assert score(run, two_phases(), 100) >= 0.95
    for depth in (0, 1, 2, 3, 4, 6, 8, 12, 16):
        fixed = drive(FixedPolicy(FixedOptions(num_speculative_tokens=depth)), two_phases(), 12 * PHASE)
        assert run.rate() > fixed.rate(), depth


@pytest.mark.parametrize("alpha, cost", [(0.05, 0.2), (0.2, 0.5), (0.3, 0.6)])
def test_the_estimator_chooses_zero_where_alpha_is_less_than_c(alpha, cost):
    run = drive(EstimatorPolicy(EstimatorOptions(), ARMS[:1]), World([alpha], [cost]), 800)
    assert sum(depth > 0 for depth in depths(run, 200)) < 600 * 0.1
    assert max(depths(run, 200)) <= 2


def test_the_estimator_finds_depth_and_drafter():
    world = World([0.5, 0.85, 0.9], [0.01, 0.05, 0.6])
    run = drive(EstimatorPolicy(EstimatorOptions(), ARMS[:3]), world, 1500)
    _, arm, depth = world.best(0)
    late = [budget for (budget,) in run.budgets[500:] if budget.depth > 1]
    assert sum(budget.arm == arm for budget in late) > 0.9 * len(late)
    assert abs(sum(budget.depth for budget in late) / len(late) - depth) < 2


@pytest.mark.parametrize("algorithm", ["ucb", "exp3"])
def test_regret_of_the_bandit_grows_ever_more_slowly(algorithm):
    """Against the best arm it has, on a text that does not change; a player at random loses the same every round."""
    world = World([0.8, 0.3], [0.1, 0.02])
    policy = BanditPolicy(BanditOptions(algorithm=algorithm, exploration=0.2 if algorithm == "ucb" else 0.05), 2)
    run = drive(policy, world, 8000)
    best = max(
        sum(world.alphas[arm] ** i for i in range(k + 1)) / (world.costs[arm] * k + world.pass_cost(1 + k))
        for arm, k in policy.arms
    )
    losses = [best * s - t for s, t in zip(run.seconds, run.tokens, strict=True)]
    early, late = sum(losses[:2000]), sum(losses[6000:])
    assert late < 0.5 * early
    played = [(b.arm, b.depth) for (b,) in run.budgets[6000:]]
    assert max(set(played), key=played.count) in {(0, 2), (0, 4), (0, 8)}


def test_the_bandits_bound_is_ucbs():
    policy = BanditPolicy(BanditOptions(lengths=(0, 2)), 1)
    policy.plays, policy.tokens, policy.seconds = [10.0, 4.0], [10.0, 12.0], [10.0, 6.0]
    bonus = [0.2 * math.sqrt(2 * math.log(14) / n) for n in (10, 4)]
    assert policy._ucb() == max((0.5 + bonus[0], 0), (1.0 + bonus[1], 1))[1]
    assert BanditPolicy(BanditOptions(), 2).arms == [(0, k) for k in (0, 1, 2, 4, 8)] + [(1, k) for k in (1, 2, 4, 8)]
    assert BanditPolicy(BanditOptions(num_speculative_tokens=3), 1).arms == [(0, k) for k in (0, 1, 2, 3)]


@pytest.mark.parametrize("algorithm", ["ucb", "exp3"])
@pytest.mark.parametrize("limit", [{"asks": 2}, {"max_tokens": 4}])
def test_a_bandit_is_not_stuck_where_a_request_cuts_its_longest_length(algorithm, limit):
    """One of three requests is short: every round that plays the lengths 4 and 8 is cut for it."""
    policy, world = BanditPolicy(BanditOptions(algorithm=algorithm), 1), World([0.2], [0.5])
    seqs = [sequence(0), sequence(1), sequence(2, **limit)]
    for number in range(200):
        budgets = policy.plan(seqs)
        policy.update(world.step(seqs, budgets, number))
    assert all(policy.plays) and sum(policy.plays) == pytest.approx(200)
    drafting = BanditPolicy(BanditOptions(lengths=(8,)), 1)
    for ends in ({"asks": 0}, {"max_tokens": 1}):
        (budget,) = drafting.plan([sequence(**ends)])
        drafting.update(world.step([sequence(**ends)], [budget], 0))
    assert drafting.plays == [0.0], "no sequence could draft: all lengths are plain decoding"


@pytest.mark.parametrize(
    ("algorithm", "exploration", "discount", "late"),
    [("ucb", 0.05, 0.99, 1), ("ucb", 0.05, 1.0, 0), ("exp3", 0.2, 0.995, 1)],
)
def test_a_bandit_picks_anew_after_a_swap_if_it_forgets(algorithm, exploration, discount, late):
    """With so little exploration one that remembers everything stays: the discount alone brings it over."""
    world = World([lambda n, s: 0.9 if n < 1500 else 0.1, lambda n, s: 0.1 if n < 1500 else 0.9], [0.02, 0.02])
    options = BanditOptions(lengths=(0, 4), algorithm=algorithm, discount=discount, exploration=exploration)
    run = drive(BanditPolicy(options, 2), world, 3000)
    for start, arm in ((200, 0), (1700, late)):
        played = [(b.arm, b.depth) for (b,) in run.budgets[start : start + 1300]]
        assert played.count((arm, 4)) > 0.75 * len(played)


def test_routing_takes_the_drafter_that_pays():
    for alphas, costs, best in (
        ([0.9, 0.4], [0.05, 0.001], 0),
        ([0.7, 0.8], [0.001, 0.4], 0),
        ([0.3, 0.9], [0, 0.1], 1),
    ):
        run = drive(RoutingPolicy(RoutingOptions(), ARMS[:2]), World(alphas, costs, fixed=0.001), 600)
        asked = [budget.arm for (budget,) in run.budgets[200:] if budget.depth]
        assert asked.count(best) > 0.85 * len(asked)
    run = drive(RoutingPolicy(RoutingOptions(), ARMS[:2]), World([0.05, 0.05], [0.3, 0.2]), 600)
    assert depths(run, 200).count(0) > 0.85 * 400  # neither pays


def test_routing_changes_with_the_text():
    world = World([lambda n, s: 0.95 if n // PHASE % 2 else 0.05, 0.7], [0.001, 0.05])
    run = drive(RoutingPolicy(RoutingOptions(), ARMS[:2]), world, 4 * PHASE)
    for phase, arm in ((1, 0), (2, 1), (3, 0)):
        asked = [b.arm for (b,) in run.budgets[phase * PHASE + 150 : (phase + 1) * PHASE]]
        assert asked.count(arm) > 0.8 * len(asked)


def test_the_switch_goes_off_and_looks_again():
    bad = lambda number, seq: 0.05 if number < 1000 else 0.9  # noqa: E731
    run = drive(ProbePolicy(ProbeOptions()), World([bad], [0.1]), 2000)
    on = [depth > 0 for depth in depths(run)]
    assert all(on[:32]) and not any(on[32:288]) and all(on[288:296]) and not any(on[296:552])
    assert all(on[1300:])  # once it pays, the next trial keeps it on
    good = drive(ProbePolicy(ProbeOptions()), World([0.8], [0.1]), 400)
    assert all(depths(good))


def test_the_heuristic_by_hand():
    world = World([1.0], [0.1])
    policy, seq = HeuristicPolicy(HeuristicOptions()), sequence()
    assert depths(drive(policy, world, 9, [seq])) == [5, 7, 9, 11, 13, 15, 17, 19, 20]
    world.alphas = [0.0]
    assert depths(drive(policy, world, 21, [seq])) == [*range(20, 0, -1), 1]


def test_history_moves_by_one_and_then_waits():
    policy, seq, world = HistoryPolicy(HistoryOptions()), sequence(), World([1.0], [0.1])
    moves = depths(drive(policy, world, 40, [seq]))
    assert moves[:16] == [5] * 16 and moves[16:21] == [6] * 5 and moves[21:26] == [7] * 5 and set(moves[26:]) == {8}
    world.alphas = [0.0]
    late = depths(drive(policy, world, 60, [seq]))
    assert late[0] == 8 and late[-1] == 3 and all(a - b in (0, 1) for a, b in pairwise(late))
    assert set(depths(drive(HistoryPolicy(HistoryOptions()), World([0.85], [0.1]), 60))) <= {4, 5, 6}


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        (EstimatorOptions, {"window": 0}),
        (BanditOptions, {"lengths": ()}),
        (BanditOptions, {"algorithm": "greedy"}),
        (BanditOptions, {"discount": 2}),
        (RoutingOptions, {"retry": 0}),
        (ProbeOptions, {"every": 0}),
        (HeuristicOptions, {"rise": 0}),
        (HistoryOptions, {"window": 0}),
    ],
)
def test_bad_options(options, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        options(**bad)


def test_history_holds_to_a_limit_below_its_range():
    for share in (0.0, 1.0):
        run = drive(HistoryPolicy(HistoryOptions(num_speculative_tokens=2)), World([share], [0.1]), 50)
        assert {budget.depth for (budget,) in run.budgets} == {2}


def test_the_dice_of_exp3_are_its_own():
    before = random.getstate()
    drive(BanditPolicy(BanditOptions(algorithm="exp3"), 1), World([0.5], [0.1]), 50)
    assert random.getstate() == before
