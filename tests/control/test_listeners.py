"""Arms that need hidden states leave texts where they are far from paying, and are spared the next ones."""

from types import SimpleNamespace

import pytest
from control.world import Working, drive, sequence

from outdraft.control.auto.listeners import Listeners
from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.control.shared.costs import ArmDepth
from outdraft.core.policy import Arm
from outdraft.core.speculative import Settled

HEAD, LOOK_UP = 1, 0


def text(number=0, *, age=0, is_drawn=False, choice=(0, 0)):
    return SimpleNamespace(
        number=number, age=age, is_drawn=is_drawn, choice=ArmDepth(*choice), resting=frozenset()
    )  # fmt: skip


def let_go(listeners, one, *, promise=0.1, count=8, work=0.05):
    """After a plan that promises 1 token a second, where a pass takes a second."""
    listeners.let_go(one, {LOOK_UP: 0.1, HEAD: promise}, 1.0, count=count, work=work, passing=1.0)
    return one.resting


def engine(alpha, work):
    """A policy over a look-up and a head, in a world where the policy's own work shows or not."""
    world = Working([0.0, alpha], [0.0001, 0.3])
    world.work = work
    return AutoPolicy(AutoOptions(), [Arm(name="look-up"), Arm(name="head", listens=True)]), world


@pytest.mark.parametrize(
    ("work", "alpha", "left"),
    [
        (0.05, 0.05, {HEAD}),  # the look-up does not listen, and stays
        (0.001, 0.05, set()),  # nobody notices its listening
        (0.05, 0.9, set()),  # it pays
    ],
)
def test_a_listener_leaves_where_listening_shows(work, alpha, left):
    policy, world = engine(alpha, work)
    resting = []
    for number in range(4):
        seq = sequence(number)
        run = drive(policy, world, 60, [seq])
        resting.append(run.budgets[-1][0].resting)
        policy.end([seq])
    assert resting[1:] == [left] * 3


@pytest.mark.parametrize(("work", "alpha", "left"), [(0.05, 0.05, {HEAD}), (0.001, 0.05, set()), (0.05, 0.9, set())])
def test_the_next_text_is_not_told_to_it(work, alpha, left):
    policy, world = engine(alpha, work)
    for number in range(2):
        drive(policy, world, 60, [sequence(number)])
        policy.end([sequence(number)])
    seq = sequence(2)
    assert policy.spare(seq, 1) == left
    budgets = drive(policy, world, 60, [seq]).budgets
    assert all(each[0].resting == left for each in budgets) or not left


def test_of_32_texts_one_is_listened_to_for_a_while():
    listeners = Listeners([HEAD])
    assert let_go(listeners, text()) == {HEAD}
    assert not let_go(listeners, text(8 * 31, age=15)) and let_go(listeners, text(8 * 31, age=16)) == {HEAD}
    spared = [listeners.spared(text(number), 8) for number in range(8 * 64)]
    assert [bool(each) for each in spared] == [number // 8 % 32 != 31 for number in range(8 * 64)]


def test_who_guesses_stays():
    listeners, one = Listeners([HEAD]), text(choice=(HEAD, 3))
    assert not let_go(listeners, one) and not listeners.spared(text(1), 8)


def test_a_smaller_batch_and_texts_of_another_sort_are_told():
    listeners = Listeners([HEAD])
    let_go(listeners, text(is_drawn=True), count=8)
    assert listeners.spared(text(1, is_drawn=True), 8) == listeners.spared(text(1, is_drawn=True), 9) == {HEAD}
    assert not listeners.spared(text(1, is_drawn=True), 7) and not listeners.spared(text(1), 8)
    let_go(listeners, text(is_drawn=True), count=4)
    assert listeners.spared(text(1, is_drawn=True), 4) == {HEAD}


def test_a_plan_in_which_it_is_not_far_from_paying_has_it_told_again():
    listeners = Listeners([HEAD])
    let_go(listeners, text(), count=4)
    let_go(listeners, text(), count=8, promise=0.95)
    assert not listeners.spared(text(1), 8) and listeners.spared(text(1), 9) == {HEAD}
    let_go(listeners, text(), count=2, promise=0.95)  # says nothing of larger batches
    assert listeners.spared(text(1), 9) == {HEAD}


def test_a_request_that_names_its_drafter_has_it():
    policy, world = engine(0.05, 0.05)
    drive(policy, world, 60, [sequence(0)])
    policy.end([sequence(0)])
    own = sequence(1)
    own.settled = Settled(arm=HEAD, resting=frozenset({LOOK_UP}))
    assert policy.spare(own, 1) == {LOOK_UP}
    policy.end([own])
    assert policy.spare(sequence(2), 1) == {HEAD} and policy._texts.keys() == {2}
