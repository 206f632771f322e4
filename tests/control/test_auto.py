"""The default policy: near the oracle wherever chances and costs lie, on texts that change, in batches; cheap where
nothing pays. All on a scripted clock."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from control.world import World, drive, sequence

from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.control.fixed import FixedOptions, FixedPolicy
from outdraft.control.shared.acceptance import TextOutlook
from outdraft.control.shared.speedup import divide_depths
from outdraft.core.draft import Draft, chain
from outdraft.core.policy import Arm
from outdraft.options.errors import ConfigError


def auto(num_arms=1, **options):
    return AutoPolicy(AutoOptions(**options), [Arm(name=str(arm)) for arm in range(num_arms)])


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("cost", [0.001, 0.05, 0.25, 0.5])
def test_near_the_oracle_on_a_steady_text(alpha, cost):
    world = World([alpha], [cost], noise=0.2)
    run = drive(auto(), world, 1500)
    depth = max(1, world.best(0)[2])
    expected = world.best(0)[0]
    luck = 0.02 + 0.6 / (1500 / depth) ** 0.5  # of the dice
    assert run.rate(100) > (0.97 - luck) * expected
    assert run.rate(100) > 0.97  # plain decoding makes 1


@pytest.mark.parametrize("cost", [0.2, 0.5])
def test_nothing_where_alpha_is_less_than_c(cost):
    run = drive(auto(), World([cost / 3], [cost]), 600)
    drafted = sum(budget.depth > 0 for (budget,) in run.budgets[100:])
    assert drafted < 500 * 0.15 and run.rate(100) > 0.97


@pytest.mark.parametrize("low, high, cost", [(0.1, 0.9, 0.05), (0.0, 0.9, 0.25), (0.3, 0.8, 0.1)])
def test_follows_a_text_in_two_phases(low, high, cost):
    """At least 95 % of the oracle after a burn-in in each phase, and better than every single depth."""

    def world():
        return World([lambda number, seq: high if number // 400 % 2 else low], [cost])

    rounds = 12 * 400
    run, oracle, made, took = drive(auto(), world(), rounds), world(), 0.0, 0.0
    for start in range(0, rounds, 400):
        made += sum(run.tokens[start + 60 : start + 400]) / oracle.best(start)[0]
        took += sum(run.seconds[start + 60 : start + 400])
    assert made / took >= 0.95
    for depth in (0, 1, 2, 3, 4, 6, 8, 12, 16):
        fixed = drive(FixedPolicy(FixedOptions(num_speculative_tokens=depth)), world(), rounds)
        assert run.rate() > fixed.rate() * 0.999, depth


def test_changes_arms_with_the_text():
    def chances(number, seq):
        return 0.9 if number // 300 % 2 else 0.05

    world = World([chances, 0.7], [0.001, 0.05])
    run = drive(auto(2), world, 3000)
    shares = [0.0, 0.0]
    for number, (budget,) in enumerate(run.budgets):
        if number % 300 > 80 and budget.depth:
            shares[number // 300 % 2] += (budget.arm == 0) / 5 / 219
    assert shares[1] > 0.85 and shares[0] < 0.25
    made = sum(t / world.best(n)[0] for n, t in enumerate(run.tokens) if n % 300 > 60)
    assert made / sum(s for n, s in enumerate(run.seconds) if n % 300 > 60) > 0.93


def test_a_free_arm_is_watched_and_taken_up_at_once():
    """A look-up that begins to be right: without a look at its guesses only a probe, some rounds later, would tell."""
    turn, rounds = 208, 420  # a probe has just been made

    def chances(number, seq):
        return 1.0 if number >= turn else 0.0

    waits = []
    for watched in (False, True):
        now = [0]

        def peek(seq, budget, now=now):
            return chain([1] * (1 + budget.depth) if now[0] >= turn else [1] + [9] * budget.depth)

        policy = AutoPolicy(AutoOptions(), [Arm(name="look-up", peek=peek if watched else None), Arm(name="model")])
        world, seqs, first = World([chances, 0.7], [0.0001, 0.05]), [sequence()], None
        for number in range(rounds):
            now[0] = number
            budgets = policy.plan(seqs)
            policy.update(world.step(seqs, budgets, number))
            if first is None and number >= turn and budgets[0].depth and budgets[0].arm == 0:
                first = number
            if watched and 40 < number < turn:
                assert budgets[0].arm == 1 or not budgets[0].depth  # it never pays for a probe
        waits.append(first - turn)
    assert waits[1] <= 6 < 20 <= waits[0]


def test_what_a_request_forbids_is_not_held_against_a_watched_arm():
    """One that is always right is never said to have stopped where it was not asked to go on."""
    depths = set()

    def peek(seq, budget):
        depths.add(budget.depth)
        return chain([1] * (1 + budget.depth))

    policy = AutoPolicy(AutoOptions(num_speculative_tokens=3), [Arm(name="look-up", peek=peek), Arm(name="oracle")])
    drive(policy, World([1.0, 1.0], [0.001, 0.0]), 80, [sequence(0, asks=0), sequence(1, asks=1), sequence(2)])
    assert depths == {1, 3}
    assert TextOutlook(policy._arms[0].hazards[True], 32).survivals(4)[-1] > 0.9


def test_of_a_large_batch_some_are_watched_in_turn():
    """Looks that cost a hundredth of a pass: no more than two a round of each arm, and every arm sees everybody."""
    rounds, asked = [], []

    def peek(seq, budget):
        asked.append((budget.arm, seq.id))
        return chain([1])

    arms = [Arm(name="look-up", peek=peek), Arm(name="another", peek=peek), Arm(name="model")]
    policy = AutoPolicy(AutoOptions(), arms)
    world = World([0.0, 0.0, 0.7], [0.002, 0.002, 0.01], slope=0.0, per_text=(0, 1))
    seqs = [sequence(i) for i in range(8)]
    for number in range(80):
        asked.clear()
        budgets = policy.plan(seqs)
        policy.update(world.step(seqs, budgets, number))
        rounds.append(list(asked))
    for arm in (0, 1):
        seen = [[one for watched, one in own if watched == arm] for own in rounds]
        assert max(map(len, seen)) == 2 and {one for own in seen for one in own} == set(range(8))


@pytest.mark.logs_faults
@pytest.mark.parametrize("bad", ["raises", "nothing", "no tree"])
def test_an_arm_that_breaks_when_it_is_watched_costs_no_guess(bad, caplog):
    """It breaks for one sequence of two; both go on with the other arm, and probes still try it."""

    def peek(seq, budget):
        if seq.id != 1:
            return chain([1])
        if bad == "raises":
            raise ValueError("no such text")
        return None if bad == "nothing" else Draft(tokens=torch.tensor([1, 2]), parents=torch.tensor([0, -1]))

    policy = AutoPolicy(AutoOptions(), [Arm(name="look-up", peek=peek), Arm(name="model")])
    world, seqs, arms = World([0.3, 0.8], [0.0001, 0.05]), [sequence(i) for i in range(2)], Counter()
    for number in range(300):
        budgets = policy.plan(seqs)
        policy.update(world.step(seqs, budgets, number))
        if number >= 20:
            arms.update(budget.arm for budget in budgets if budget.depth)
    assert arms[1] > 500 and arms[0] > 0
    (record,) = caplog.records
    assert "look-up" in record.getMessage()


def test_an_arm_that_costs_is_not_watched():
    asked = []

    def peek(seq, budget):
        asked.append(budget)
        return chain([1])

    policy = AutoPolicy(AutoOptions(), [Arm(name="a", peek=peek), Arm(name="b")])
    drive(policy, World([0.5, 0.8], [0.2, 0.05]), 60)
    assert not asked


def test_a_drafter_that_has_nothing_to_say_costs_nothing():
    world = World([0.9], [0.0], offers=0.0, fixed=1e-5)
    run = drive(auto(), world, 500)
    assert run.rate() > 0.999


def test_a_new_text_begins_with_what_others_taught():
    """A drafter that never pays is not tried anew with every text: later ones stay near plain decoding."""
    policy, world = auto(), World([0.05], [0.3])
    for number in range(20):
        seq = sequence(number)
        run = drive(policy, world, 50 if number else 200, [seq])
        policy.end([seq])
        assert run.rate() > (0.97 if number > 3 else 0.92)
    assert not policy._texts and not policy._chosen


def test_batches_share_costs_but_not_acceptance():
    def chances(number, seq):
        return 0.9 if seq % 2 else 0.05

    world = World([chances], [0.05], slope=0.1)
    run = drive(auto(), world, 1200, [sequence(i) for i in range(8)])
    last = [[budgets[i].depth for budgets in run.budgets[-300:]] for i in range(8)]
    means = [sum(own) / len(own) for own in last]
    assert max(means[0::2]) < 0.7 < 1.5 < min(means[1::2])
    best = max((4 + 4 * sum(0.9**i for i in range(k + 1))) / (0.05 * k + world.pass_cost(8 + 4 * k)) for k in range(12))
    assert run.rate(150) > 0.94 * best


def test_a_trial_that_taught_nothing_is_made_again():
    """A pass that reads a prompt tells no costs: until one reads none, everybody decodes plainly."""
    policy, world, seqs, depths = auto(), World([0.8], [0.05]), [sequence()], []
    for number in range(14):
        budgets = policy.plan(seqs)
        depths.append(budgets[0].depth)
        reads = 7 if number < 6 else 0
        policy.update([replace(event, num_certain=reads) for event in world.step(seqs, budgets, number)])
    assert depths[:12] == [4, 0, 0, 0, 0, 0, 0, 4, 2, 3, 4, 2]
    assert policy.costs.drafts[0].is_measured and depths[-1] > 0


def test_a_larger_batch_guesses_less():
    depths = []
    for count in (1, 4, 16):
        run = drive(auto(), World([0.8], [0.05], slope=0.1), 500, [sequence(i) for i in range(count)])
        depths.append(sum(b.depth for budgets in run.budgets[-100:] for b in budgets) / 100 / count)
    assert depths[0] > depths[1] > depths[2]


def test_depths_of_a_batch_equal_brute_force():
    dice = random.Random(4)
    for _ in range(40):
        survivals = [sorted((dice.random() for _ in range(3)), reverse=True) for _ in range(3)]
        draft, slope = dice.random() / 3, dice.random() / 3

        def rate(depths, survivals=survivals, draft=draft, slope=slope):
            tokens = 3 + sum(sum(own[:k]) for own, k in zip(survivals, depths, strict=True))
            return tokens / (draft * max(depths) + 1 + slope * sum(depths))

        every = [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]
        best = max(map(rate, every))
        depths, told = divide_depths(
            survivals,
            [0, 0, 0],
            draft_costs=[lambda k, n, c=draft: c * k],
            pass_cost=lambda rows, s=slope: 1 + s * (rows - 3),
            nodes=[float] * 3,
        )
        assert told == pytest.approx(rate(depths)) and told >= 0.98 * best  # greedy, so not always the very best


def test_limits_and_requests_are_kept():
    world = World([0.95], [0.01])
    for options, seq, most in (
        ({"num_speculative_tokens": 3}, sequence(), 3),
        ({"num_speculative_tokens": 0}, sequence(), 0),
        ({}, sequence(asks=2), 2),
        ({}, sequence(asks=0), 0),
    ):
        run = drive(auto(**options), world, 60, [seq])
        assert max(budget.depth for (budget,) in run.budgets) == most
    short = sequence(max_tokens=12)
    policy = auto()
    while short.room > 0:
        (budget,) = policy.plan([short])
        assert budget.depth < short.room
        policy.update(world.step([short], [budget], 0))


def test_the_same_clock_gives_the_same_plan():
    plans = [drive(auto(2), World([0.8, 0.4], [0.05, 0.01], noise=0.3), 300).budgets for _ in range(2)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("bad", [{"num_speculative_tokens": -1}, {"memory": 0}, {"exploration": 2}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        AutoOptions(**bad)


def test_a_text_alone_is_drafted_as_it_pays_after_a_large_batch():
    """Looks for thirty-two cost more than a pass, and a look for one a thirtieth of that."""
    world = World([0.8], [0.02], slope=0.05, per_text=(0,))
    policy, many = auto(), [sequence(i) for i in range(32)]
    crowded = drive(policy, world, 60, many)
    policy.end(many)
    alone = drive(policy, world, 40, [sequence(99)])
    assert sum(budget.depth for (budget,) in alone.budgets[10:]) / 30 > 2
    assert sum(budget.depth for budgets in crowded.budgets[-10:] for budget in budgets) / 10 < 4  # probes


@pytest.mark.parametrize(("seconds", "at_once"), [(1e-3, False), (1.0, True)])
def test_who_joins_a_batch_waits_for_the_next_plan_where_plans_are_dear(seconds, at_once):
    world = World([0.9], [0.001 * seconds], slope=0.0)
    world.pass_cost = lambda rows: seconds
    policy, seqs = auto(), [sequence(i) for i in range(16)]
    drive(policy, world, 60, seqs)
    policy.update(world.step(seqs, policy.plan(seqs), 60))  # whatever was due has been planned
    more = [*seqs, sequence(99)]
    depths = []
    for number in range(14):
        budgets = policy.plan(more)
        policy.update(world.step(more, budgets, number))
        depths.append(budgets[-1].depth)
        assert min(budget.depth for budget in budgets[:-1]) > 0, "the others go on"
    assert (depths[0] > 0) == at_once and depths[-1] > 0


def test_who_is_left_alone_is_planned_for_at_once():
    world = World([0.5], [0.01e-3], slope=0.0)
    world.pass_cost = lambda rows: 1e-3 * (1 + 0.3 * (rows - 1))
    policy, seqs = auto(), [sequence(i) for i in range(16)]
    drive(policy, world, 60, seqs)
    policy.end(seqs[1:])
    (alone,) = policy.plan(seqs[:1])
    assert policy._planned == [0], alone


def test_an_arm_that_has_much_to_read_is_not_asked_for_the_last_tokens():
    """Reading 2,000 tokens takes as long as 20 passes: what a long text wins back, and a short one does not."""

    def asks(max_tokens):
        policy = auto(num_speculative_tokens=4)
        drive(policy, World([0.8], [0.02]), 60)
        policy.costs._missed[0] = 0.01
        policy.costs.doze(1, 2000)
        return policy.plan([sequence(1, max_tokens=max_tokens)])[0].depth

    assert asks(8) == 0 and asks(400) == 4


def test_what_is_done_before_every_pass_is_no_arms_cost():
    """Half a pass goes by before each one, whether a drafter guesses or not."""
    world = World([0.8], [0.01])
    step = world.step

    def later(seqs, budgets, number):
        return [
            replace(event, times=replace(event.times, draft=event.times.draft + 0.5))
            for event in step(seqs, budgets, number)
        ]

    world.step = later
    policy = auto()
    drive(policy, world, 400)
    drive(policy, world, 40, [sequence(1, asks=0)])
    drive(policy, world, 400, [sequence(2)])
    assert policy.costs.drafts[0](4) < 0.2


def test_one_busy_moment_makes_no_number_of_rows_dear():
    policy = auto()
    for rows, seconds in ((1, 1.0), (5, 9.0), (6, 1.5), (9, 1.8)):
        policy.costs.passes.add(rows, seconds)
    assert policy.costs.passes(5) < 2.5
