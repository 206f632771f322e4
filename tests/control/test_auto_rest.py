"""Where nothing pays `auto` looks away, and it begins the next engine with what it has learned."""

import json
import random
from copy import deepcopy
from dataclasses import replace

import pytest
from control.world import Working, World, drive, sequence

from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.control.auto.resting import Nap
from outdraft.control.shared.curve import CostCurve
from outdraft.core.draft import chain
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.policy import Arm


def watched(asked, right=lambda: False):
    """A look-up that notes when it is asked, and is right from some time on."""

    def peek(seq, budget):
        asked.append(len(seq.tokens))
        return chain([1] * (1 + budget.depth) if right() else [1] + [9] * budget.depth)

    return peek


def test_where_nothing_pays_most_rounds_are_not_looked_at():
    asked = []
    policy, world = AutoPolicy(AutoOptions(), [Arm(name="look-up", peek=watched(asked))]), Working([0.0], [0.0001])
    world.work = 0.015
    drive(policy, world, 400)
    assert 80 < len(set(asked)) < 400 / 2.5  # 0.015 of work, twice, in a hundredth of the time: a nap of 2 rounds


def test_where_the_work_does_not_show_every_round_is_looked_at():
    asked = []
    policy = AutoPolicy(AutoOptions(), [Arm(name="look-up", peek=watched(asked))])
    drive(policy, World([0.0], [0.0001]), 400)
    assert len(set(asked)) > 300


def test_a_look_up_that_becomes_right_ends_the_naps():
    """In the text of one round it is right; within a few naps it is taken up, and then it is used in every round."""
    turn, now = 200, [0]
    policy = AutoPolicy(AutoOptions(), [Arm(name="look-up", peek=watched([], lambda: now[0] >= turn))])
    world, seqs, used = Working([lambda number, seq: 1.0 if number >= turn else 0.0], [0.0001]), [sequence()], []
    for number in range(300):
        now[0] = number
        budgets = policy.plan(seqs)
        policy.update(world.step(seqs, budgets, number))
        used.append(budgets[0].depth > 0)
    assert sum(used[turn : turn + 50]) > 10 and all(used[turn + 60 :])
    assert sum(used[40:turn]) < 16


def test_no_nap_follows_a_look_that_was_right():
    """Plain decoding is still planned; the next round is looked at all the same."""
    right = [False]
    policy = AutoPolicy(AutoOptions(), [Arm(name="look-up", peek=watched([], lambda: right[0]))])
    world, seqs = Working([0.0], [0.0001]), [sequence()]
    world.work = 0.015
    run = drive(policy, world, 100, seqs)
    while policy._nap.rounds_left:
        run = drive(policy, world, 1, seqs)
    right[0] = True
    run = drive(policy, world, 1, seqs)
    assert not run.budgets[0][0].depth and not policy._nap.rounds_left


def test_a_text_that_joins_ends_the_nap():
    policy = AutoPolicy(AutoOptions(), [Arm(name="model")])
    world, seqs = Working([0.0], [0.5]), [sequence(0)]
    drive(policy, world, 60, seqs)
    assert policy._nap.rounds_left > 0
    budgets = policy.plan([*seqs, sequence(1)])
    assert len(budgets) == 2 and not policy._nap.is_asleep


def napping(policy, world, seqs):
    """Rounds until a nap is about to begin."""
    drive(policy, world, 60, seqs)
    while policy._nap.num_slept or policy._nap.rounds_left < 4:
        drive(policy, world, 1, seqs)


def test_a_nap_that_a_round_of_others_broke_does_not_go_on_behind_it():
    """One text is not asked for a round, as where its next tokens are forced."""
    policy, world, seqs = (
        AutoPolicy(AutoOptions(), [Arm(name="model")]),
        Working([0.0], [0.5]),
        [sequence(0), sequence(1)],
    )
    napping(policy, world, seqs)
    policy.plan(seqs[:1])
    policy.plan(seqs)
    assert not policy._nap.is_asleep


def test_a_text_that_begins_again_does_not_sleep_on():
    """It is one of those that rested before, and the arms that had left it have come back."""
    policy, world, seq = AutoPolicy(AutoOptions(), [Arm(name="head", listens=True)]), Working([0.0], [0.5]), sequence()
    napping(policy, world, [seq])
    assert policy._texts[0].resting
    policy.end([seq])
    policy.spare(seq, 1)
    (budget,) = policy.plan([seq])
    assert not policy._nap.is_asleep and budget.resting == policy._texts[0].resting == frozenset()


def test_what_is_read_beside_a_nap_is_known_to_be_unread_by_the_arms():
    policy, world, seq, new = (
        AutoPolicy(AutoOptions(), [Arm(name="model")]),
        Working([0.0], [0.5]),
        sequence(),
        sequence(1),
    )
    napping(policy, world, [seq])
    policy.spare(new, 2)
    for tokens in ((), (1,)):
        events = world.step([seq], policy.plan([seq]), 0)
        assert policy._nap.is_asleep
        policy.update([*events, StepEvent(seq_id=1, tokens=tokens, num_certain=300)])
    policy.costs._missed[0] = 0.01
    assert policy.costs.catch_up(1, 0) == pytest.approx(6.01)


def test_a_nap_that_ends_with_a_forced_round_is_over():
    """A mask left one token there, so the policy has not heard of the round; it hears of the next one."""
    policy, world, seq = AutoPolicy(AutoOptions(), [Arm(name="model")]), Working([0.0], [0.5]), sequence()
    napping(policy, world, [seq])
    while policy._nap.rounds_left > 1:
        drive(policy, world, 1, [seq])
    policy.plan([seq])
    assert policy._nap.is_asleep and not policy._nap.rounds_left
    before = policy._texts[0].age + policy._nap.num_slept
    drive(policy, world, 1, [seq])
    assert policy._texts[0].age == before + 1


def test_a_nap_is_as_long_as_the_work_asks():
    nap = Nap()
    assert nap.rounds(1.0) == 0
    nap.add(0.001)
    assert nap.rounds(1.0) == 0 and nap.rounds(0.05) == 3 and nap.rounds(1e-9) == 24 and nap.rounds(0.0) == 0


def test_the_best_of_many_estimates_must_promise_something():
    """An arm that gains one in a hundred by the estimates, which are less sure than that, is not used."""
    world, seq = World([0.031], [0.0001], slope=0.02), sequence()
    policy, planned = AutoPolicy(AutoOptions(), [Arm(name="a")]), 0
    for number in range(2000):
        policy.update(world.step([seq], policy.plan([seq]), number))
        planned += number >= 500 and policy._texts[0].choice.depth > 0
    assert planned < 300


def test_what_was_kept_spares_the_next_engine_its_trials():
    def world():
        return World([0.05, 0.8], [0.3, 0.05], noise=0.1)

    arms = [Arm(name="a"), Arm(name="b")]
    first = AutoPolicy(AutoOptions(), arms)
    assert first.keep() is None  # nothing is known
    drive(first, world(), 300)
    kept = json.loads(json.dumps(first.keep()))
    cold, warm = AutoPolicy(AutoOptions(), arms), AutoPolicy(AutoOptions(), arms)
    warm.recall(kept)
    runs = [drive(policy, world(), 20) for policy in (cold, warm)]
    assert {budget.arm for (budget,) in runs[1].budgets[-12:]} == {1}  # behind a few trials
    assert runs[1].rate() > 1.05 * runs[0].rate()
    for curve, told in zip(
        (warm.costs.passes, *warm.costs.drafts), (first.costs.passes, *first.costs.drafts), strict=True
    ):
        assert curve(3) == pytest.approx(told(3), rel=0.15)  # of a few measurements a small one counts


@pytest.mark.parametrize("length", [32, 200])
def test_an_arm_that_was_dear_on_a_busy_machine_is_tried_once_costs_are_settled(length):
    busy, again = (AutoPolicy(AutoOptions(), [Arm(name="model")]) for _ in range(2))
    drive(busy, World([0.85], [6.0]), 200)
    again.recall(json.loads(json.dumps(busy.keep())))
    world = World([0.85], [0.05])
    for text in range(4):
        seqs = [sequence(1 + text, max_tokens=length)]
        run = drive(again, world, length // 3, seqs)
        again.end(seqs)
    assert sum(budget.depth > 0 for (budget,) in run.budgets) > 0.3 * len(run.budgets)
    assert again.costs.drafts[0](1) < 0.2


@pytest.mark.parametrize("times", [10, 0.1])
def test_a_machine_that_is_slower_or_quicker_now_is_noticed_within_three_rounds(times):
    policy = AutoPolicy(AutoOptions(), [Arm(name="a"), Arm(name="b")])
    drive(policy, World([0.05, 0.8], [0.3, 0.05]), 300)
    kept, before = policy.keep(), [draft(3) for draft in policy.costs.drafts]
    again = AutoPolicy(AutoOptions(), [Arm(name="a"), Arm(name="b")])
    again.recall(kept)
    other = World([0.05, 0.8], [times * 0.3, times * 0.05])
    other.pass_cost = lambda rows: times * (1 + 0.02 * (rows - 1))
    drive(again, other, 4)
    assert again.costs.passes(1) == pytest.approx(times, rel=0.1)
    assert [draft(3) for draft in again.costs.drafts] == pytest.approx([times * one for one in before], rel=0.2)


def test_what_is_not_ours_changes_nothing():
    arms = [Arm(name="a"), Arm(name="b")]
    taught = AutoPolicy(AutoOptions(), arms)
    drive(taught, World([0.05, 0.8], [0.3, 0.05]), 100)
    kept, dice = json.loads(json.dumps(taught.keep())), random.Random(3)

    def damaged():
        """One value somewhere is another."""
        copy = deepcopy(kept)
        place, path = copy, []
        while isinstance(place, dict | list) and place:
            path.append((place, dice.choice(list(place) if isinstance(place, dict) else range(len(place)))))
            place = path[-1][0][path[-1][1]]
        holder, key = path[-1]
        holder[key] = dice.choice([None, "x", -1, 1e300, float("nan"), [], {}])
        return copy

    untouched = drive(AutoPolicy(AutoOptions(), arms), World([0.5, 0.8], [0.3, 0.05]), 40)
    refused = 0
    for told in [{}, {"costs": {}, "arms": {}}, {**kept, "arms": {"b": 1, "a": 2}}, *(damaged() for _ in range(300))]:
        policy = AutoPolicy(AutoOptions(), arms)
        try:
            policy.recall(told)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
            refused += 1
            again = drive(policy, World([0.5, 0.8], [0.3, 0.05]), 40)
            assert again.budgets == untouched.budgets
        else:
            drive(policy, World([0.5, 0.8], [0.3, 0.05]), 40)
    assert refused > 150


def test_a_curve_keeps_what_it_knows_and_forgets_it_soon():
    curve = CostCurve(0.98, 0.02)
    for x in (1, 5, 9) * 12:
        curve.add(x, 0.1 * (0.8 + 0.2 * x))
    again = CostCurve(0.98, 0.02)
    again.recall(json.loads(json.dumps(curve.kept())))
    for x in (1, 5, 7, 9):
        assert again(x) == pytest.approx(curve(x), rel=0.05)
    assert again(6) == pytest.approx((again(5) + again(7)) / 2, rel=0.05) and again(5.5) == pytest.approx(
        (again(5) + again(6)) / 2
    )
    for _ in range(12):
        again.add(9, 0.1 * (0.8 + 0.2 * 9) * 1.5)
    assert again(9) > 1.3 * curve(9)


def test_what_was_kept_of_a_busy_machine_is_soon_forgotten():
    busy, again = CostCurve(0.1, 0.9), CostCurve(0.1, 0.9)
    for x in (1, 2, 4) * 4:
        busy.add(x, 0.01 * x)
    for _ in range(4):
        busy.add(3, 0.3)
    again.recall(json.loads(json.dumps(busy.kept())))
    again.add(3, 0.03)
    assert again(3) < 0.06


def test_what_a_curve_recalls_takes_the_place_of_what_it_measured():
    kept, used, fresh = CostCurve(1.0, 1.0), CostCurve(1.0, 1.0), CostCurve(1.0, 1.0)
    for x in (1, 5):
        kept.add(x, 0.01 * x**2)
    for x in (1, 7):
        used.add(x, 0.5)
    used.recall(kept.kept())
    fresh.recall(kept.kept())
    assert used(7) == fresh(7) and used(5) == fresh(5)


def test_one_long_step_of_another_program_does_not_decide():
    curve = CostCurve(0.98, 0.02)
    for seconds in (0.1, 7.0):
        curve.add(3, seconds)
    assert curve(3) < 0.2
    for seconds in (0.1, 0.1, 0.1, 0.5, 0.1, 0.1, 0.5, 0.1) * 3:
        curve.add(3, seconds)
    assert 0.11 < curve(3) < 0.2  # a mean, in which 0.5 counts for 0.3


def test_a_look_up_is_watched_though_its_trials_met_a_busy_machine():
    """Two of three were stopped by another program: what it costs to look is known by the third."""
    asked, world = [], World([0.0], [0.0001])
    step = world.step

    def stopped(seqs, budgets, number):
        (event,) = step(seqs, budgets, number)
        slow = StepTimes(draft=event.times.draft + 2.0 * (number in (1, 2)), target=event.times.target)
        return [replace(event, times=slow)]

    world.step = stopped
    policy = AutoPolicy(AutoOptions(), [Arm(name="look-up", peek=watched(asked))])
    drive(policy, world, 40)
    assert len(set(asked)) > 10
