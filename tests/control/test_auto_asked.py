"""`auto` heeds what a request has decided itself: who guesses for it, how deep, and how many tokens it may have."""

from dataclasses import replace

import pytest
from control.world import World, drive, sequence

from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.core.draft import chain
from outdraft.core.policy import Arm, Budget
from outdraft.options.speculative import Settled


def test_a_request_that_names_its_arm_is_asked_of_no_other():
    """In no round, trials, probes and watches included; its neighbour has all of them."""
    peeked = []

    def peek(seq, budget):
        peeked.append(seq.id)
        return chain([1, 1])

    policy = AutoPolicy(AutoOptions(), [Arm(name="a", peek=peek), Arm(name="b"), Arm(name="c")])
    own, free = sequence(0), sequence(1)
    own.settled = Settled(arm=1, resting=frozenset({0, 2}))
    run = drive(policy, World([0.9, 0.7, 0.2], [0.001, 0.02, 0.02]), 200, [own, free])
    arms = [{budgets[i].arm for budgets in run.budgets if budgets[i].depth} for i in (0, 1)]
    assert arms[0] == {1} and 0 in arms[1]
    assert all(budgets[0].resting >= {0, 2} for budgets in run.budgets if budgets[0].depth)
    assert 0 not in peeked


def test_a_request_with_a_fixed_depth_has_it_in_every_round():
    policy = AutoPolicy(AutoOptions(), [Arm(name="a"), Arm(name="b")])
    own, free = sequence(0), sequence(1)
    own.settled = Settled(arm=1, resting=frozenset({0}), depth=20)
    run = drive(policy, World([0.1, 0.1], [0.1, 0.1]), 120, [own, free])
    assert {(budgets[0].arm, budgets[0].depth) for budgets in run.budgets} == {(1, 20)}
    assert sum(budgets[1].depth == 0 for budgets in run.budgets) > 80  # the other one's rounds are the policy's own


@pytest.mark.parametrize(("cost", "reading", "pays"), [(3.0, 1.0, False), (0.05, 0.05, True)])
def test_an_arm_that_no_text_has_room_to_measure_is_priced_by_its_first_guess(cost, reading, pays):
    """Texts of three tokens, of which the prompt gives one: no text has room for a second guess, nor for a trial."""
    policy, world, guessed = AutoPolicy(AutoOptions(), [Arm(name="a")]), World([0.9], [cost]), []
    for number in range(20):
        seq = sequence(number, max_tokens=3)
        policy.spare(seq, 1)
        (event,) = world.step([seq], [Budget(depth=0)], number)
        policy.update([replace(event, num_certain=200)])
        (budget,) = policy.plan([seq])
        guessed.append(budget.depth)
        (event,) = world.step([seq], [budget], number)
        read = reading if budget.depth else 0.0
        policy.update([replace(event, times=replace(event.times, draft=event.times.draft + read))])
        policy.end([seq])
    assert not policy.costs.drafts[0].is_measured
    assert guessed == [0, *[1] * 19] if pays else [0, 1, *[0] * 18]  # the first round of all is plain
