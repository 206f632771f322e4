"""A busy machine stops a guess for longer than it takes: costs and the policy `auto` do not believe the first ones."""

import random
from dataclasses import replace

import pytest
from control.world import World, drive, sequence

from outdraft.control.auto.exploring import Probe
from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.control.shared.costs import PLAIN
from outdraft.control.shared.curve import CostCurve, DraftCost
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.policy import Arm
from outdraft.core.sequence import Settled

QUICK, STOPPED = 0.1, 5.0  # passes: of a token's drafting, and of a guess that another program stops


def test_of_a_few_measurements_a_small_one_counts():
    cost = DraftCost()
    for seconds in (0.5, 0.05, 0.4, 0.7, 0.06):
        cost.add(2, seconds)
    assert 0.04 < cost(2) < 0.09


def test_a_guess_takes_a_token_at_most_twice_as_long_as_a_shorter_guess():
    """A drafter of two tokens a pass needs two for three tokens and one for two; no row of a target does so."""
    cost, passes = DraftCost(), CostCurve(0.98, 0.02)
    for curve in (cost, passes):
        curve.add(4, 9.0)
        for _ in range(6):
            curve.add(1, 0.1)
    assert 0.5 < cost(4) < 0.9 and cost(8) < 2 and passes(4) > 4


def test_hiccups_in_a_row_raise_no_cost_tenfold():
    cost = DraftCost()
    for seconds in [0.1] * 20 + [2.0] * 3:
        cost.add(2, seconds)
    assert cost(2) < 0.2
    for _ in range(20):
        cost.add(2, 0.4)  # the whole machine is slower from now on
    assert cost(2) > 0.3


def test_a_cost_does_not_sink_below_all_that_was_measured():
    """Two of five passes are stopped, so that the mean stands far above what most of them take."""
    dice, curve = random.Random(3), CostCurve(0.98, 0.02)
    for _ in range(400):
        curve.add(1, 2.5 if dice.random() < 0.4 else 1.0)
        assert curve(1) > 0.99
    assert curve(1) < 2


class Stopped(World):
    """`is_busy`: other programs stop every guess, or its pass. `unit`: seconds of a pass. `work`: before each pass."""

    is_busy, in_pass, unit, work = True, False, 1.0, 0.0

    def step(self, seqs, budgets, number):
        made = super().step(seqs, budgets, number)
        stopped = STOPPED * (self.is_busy and any(budget.depth for budget in budgets)) / len(seqs)
        before = self.work / len(seqs) + stopped * (not self.in_pass)
        return [
            replace(
                event,
                times=StepTimes(
                    draft=self.unit * (event.times.draft + before),
                    target=self.unit * (event.times.target + stopped * self.in_pass),
                ),
            )
            for event in made
        ]


def write(policy, world, number, tokens, settled=None):
    """Tokens of one text for each pass that its seconds would have been, and its budgets."""
    seq, seconds, budgets = sequence(number, max_tokens=tokens), 0.0, []
    seq.settled = settled or seq.settled
    begun = len(seq.tokens)
    while seq.room > 0:
        (budget,) = policy.plan([seq])
        (event,) = world.step([seq], [budget], number)
        policy.update([event])
        budgets.append(budget)
        seconds += event.times.draft + event.times.target
    policy.end([seq])
    return (len(seq.tokens) - begun) / seconds * world.unit, budgets


def began(alpha=0.8, unit=1.0, work=0.0, in_pass=False, **arm):
    """The first text was written while other programs ran."""
    world = Stopped([alpha], [QUICK])
    world.unit, world.work, world.in_pass = unit, work, in_pass
    policy = AutoPolicy(AutoOptions(), [Arm(name="head", **arm)])
    assert write(policy, world, 0, 64)[0] < 0.9
    assert (policy.costs.passes(3) if in_pass else policy.costs.drafts[0](2)) > unit, "what it believes"
    world.is_busy = False
    return policy, world


def doubts(policy, world, number, tokens=120, **more):
    """Whether the text begins with other guesses than are planned."""
    return [budget.depth for budget in write(policy, world, number, tokens, **more)[1][:4]] == [1, 3, 2, 3]


@pytest.mark.parametrize("in_pass", [False, True])
@pytest.mark.parametrize("unit", [1.0, 2.5e-4])  # where a pass is short, plans are rare
@pytest.mark.parametrize(("listens", "work"), [(False, 0.0), (True, 0.0), (True, 0.05)])
def test_what_was_measured_of_an_arm_in_a_bad_moment_is_doubted_in_the_next_text(listens, work, unit, in_pass):
    policy, world = began(listens=listens, work=work, unit=unit, in_pass=in_pass, ends_early=True)
    rate, budgets = write(policy, world, 1, 120)
    assert [(budget.depth, budget.survival, len(budget.resting)) for budget in budgets[:4]] == [
        (depth, 0.0, 0) for depth in (1, 3, 2, 3)
    ]
    assert any(budget.depth for budget in budgets[4:6]) and rate > 0.8 * world.best(0)[0]
    assert not policy._doubts.due


def test_no_probe_comes_between(monkeypatch):
    policy, world = began()
    monkeypatch.setattr(policy._probes, "take", lambda: Probe(1, PLAIN, 0.0))
    assert doubts(policy, world, 1)


def test_what_would_not_pay_at_an_eighth_of_its_costs_is_not_doubted():
    """Which several texts must have shown: one says little of the next."""
    policy, world = began(0.02)
    world.is_busy, policy._doubts._left = True, [0]
    for number in range(1, 9):
        write(policy, world, number, 2000)
    policy._doubts._left = [12]
    assert policy.costs.drafts[0](1) > 1 and not doubts(policy, world, 9) and policy._doubts._left == [12]


def test_a_short_text_doubts_nothing():
    policy, world = began()
    assert not doubts(policy, world, 1, tokens=40)
    assert doubts(policy, world, 2)


def test_a_text_that_names_its_drafter_doubts_nothing():
    policy, world = began()
    assert not doubts(policy, world, 1, settled=Settled(arm=0))


def test_a_limit_of_the_request_forbids_no_doubt():
    policy, world = began()
    seq = sequence(1, max_tokens=120, asks=2)
    depths = []
    for number in range(4):
        (budget,) = policy.plan([seq])
        depths.append(budget.depth)
        policy.update(world.step([seq], [budget], number))
    assert depths == [1, 2, 2, 2] and policy._doubts._left == [8]


def test_a_pass_that_reads_a_prompt_shows_no_costs_and_the_doubt_waits():
    policy, world = began()
    seq, depths = sequence(1, max_tokens=120), []
    for number in range(9):
        (budget,) = policy.plan([seq])
        (event,) = world.step([seq], [budget], number)
        policy.update([replace(event, num_certain=5 * (number < 3))])
        depths.append(budget.depth)
    assert depths == [1, 0, 0, 0, 1, 3, 2, 3, depths[8]] and depths[8]


@pytest.mark.parametrize("count", [4, 8])
def test_a_batch_doubts_as_one(count):
    """What a guess costs is known by the number of texts that it is made for."""
    world, policy = Stopped([0.8], [QUICK]), AutoPolicy(AutoOptions(), [Arm(name="head")])
    for turn in range(3):
        world.is_busy = turn == 0
        seqs = [sequence(10 * turn + i, max_tokens=10_000) for i in range(count)]
        run = drive(policy, world, 60, seqs)
        policy.end(seqs)
    depths = [[budget.depth for budget in budgets] for budgets in run.budgets[:4]]
    assert policy._doubts._left == [8] and run.rate(8) > 1.3 * count / world.pass_cost(count), depths


def test_a_doubt_beside_a_guess_of_another_arm_corrects_its_own_costs_alone():
    """One text names its drafter, whose costs are well known; the other doubts an arm that was stopped five times."""
    world, policy = World([0.8, 0.6], [0.1, 0.05]), AutoPolicy(AutoOptions(), [Arm(name="a"), Arm(name="b")])
    for _ in range(3):
        for depth in (2, 3, 4):
            policy.costs.drafts[0].add(depth, STOPPED)
    own, free = sequence(1), sequence(2, max_tokens=120)
    own.settled = Settled(arm=1, resting=frozenset({0}), depth=4)
    policy._arms[0].num_tried = policy._arms[1].num_tried = 6
    drive(policy, world, 30, [own])
    run = drive(policy, world, 4, [own, free])
    asked = [[(budget.arm, budget.depth) for budget in budgets] for budgets in run.budgets]
    assert asked == [[(1, 4), (0, depth)] for depth in (1, 3, 2, 3)]
    assert policy.costs.drafts[1](4) == pytest.approx(4 * 0.05, rel=0.05)
    assert policy.costs.drafts[0](3) < 0.5 < STOPPED


def over_after(policy, world, number, rounds, *, reads=()):
    """A text that ends after so many rounds: its depths. `reads`: rounds before which a prompt is read alone."""
    seq, depths = sequence(number, max_tokens=10_000), []
    for at in range(rounds):
        if at in reads:
            policy.update([reading(sequence(1000), 512)])
        (budget,) = policy.plan([seq])
        depths.append(budget.depth)
        policy.update(world.step([seq], [budget], number))
    policy.end([seq])
    return depths


def reading(seq, rows, tokens=()):
    """A chunk of a prompt in a pass of its own, with the token that the last one gives."""
    seq.tokens.extend(tokens)
    return StepEvent(seq_id=seq.id, tokens=tokens, num_certain=rows, times=StepTimes(target=3.0))


def test_a_doubt_that_a_text_cuts_off_costs_the_rounds_that_were_made():
    """Twelve rounds in all, as many as three doubts."""
    for rounds, count in ((1, 11), (2, 6), (3, 4)):
        policy, world = began()
        world.is_busy = True
        depths = [over_after(policy, world, number, rounds) for number in range(1, 12)]
        assert [one == [1, 3, 2][:rounds] for one in depths] == [True] * count + [False] * (11 - count)


def test_a_prompt_that_is_read_between_two_rounds_puts_none_of_them_back():
    policy, world = began()
    assert over_after(policy, world, 1, 4, reads=(1, 2, 3)) == [1, 3, 2, 3] and policy._doubts._left == [8]


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_a_text_is_new_when_its_prompt_has_been_read(chunks):
    (policy, _), seq = began(), sequence(1, max_tokens=120)
    policy.spare(seq, 1)
    for left in reversed(range(chunks)):
        policy.update([reading(seq, 512, () if left else (1,))])
    assert [policy.plan([seq])[0].depth, policy._texts[1].age] == [1, 1]


def test_rounds_that_other_prompts_spoil_count_as_well():
    policy, world, depths = AutoPolicy(AutoOptions(), [Arm(name="model")]), World([0.3], [0.8]), []
    drive(policy, world, 60, [sequence(0)])
    for text in range(1, 21):
        seqs = [sequence(text, max_tokens=60)]
        for number in range(40):
            budgets = policy.plan(seqs)
            events = world.step(seqs, budgets, number)
            depths.append(budgets[0].depth)
            policy.update([*events, reading(sequence(999), 64, ())] if number % 2 == 0 else events)
        policy.end(seqs)
    first, *others = [sum(depth > 0 for depth in depths[at : at + 40]) for at in range(0, len(depths), 40)]
    assert first <= 12 and max(others) <= 5 and policy._doubts._left == [0]


def test_three_texts_doubt_an_arm_and_no_more():
    """Where the guess is as dear as it seemed."""
    policy, world = began()
    world.is_busy = True
    assert [doubts(policy, world, 1 + number, 64) for number in range(6)] == [True] * 3 + [False] * 3
