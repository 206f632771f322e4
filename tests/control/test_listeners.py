"""Arms that need hidden states leave texts where they are far from paying, and are spared the next ones."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from control.world import Working, sequence

from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.control.auto.records import ArmRecord, SequenceRecord
from outdraft.control.auto.resting import Listeners
from outdraft.control.shared.costs import ArmDepth
from outdraft.core.policy import Arm, Budget
from outdraft.options.speculative import Settled

HEAD, LOOK_UP = 1, 0
NEAR = 16  # tokens


def text(listeners, *, crowd=8, age=0, is_drawn=False, choice=(0, 0), counted=()):
    made = SimpleNamespace(
        age=age, is_drawn=is_drawn, choice=ArmDepth(*choice), resting=frozenset(), counted=frozenset(counted)
    )
    listeners.meet(made, crowd)
    return made


def let_go(listeners, one, *, promise=0.1, work=0.05, deepest=16):
    """After a plan that promises 1 token a second, where a pass takes a second."""
    promises = {LOOK_UP: 0.1, HEAD: promise}
    listeners.let_go(one, promises, 1.0, work=work, passing=1.0, deepest=deepest, limit=16)
    return one.resting


def far(listeners, times=3, **fields):
    for _ in range(times):
        let_go(listeners, text(listeners, **fields))


def spared(listeners, crowd=8, **fields):
    one = text(listeners, crowd=crowd, **fields)
    listeners.spare(one)
    return one.resting


def engine(alphas, work=0.05, costs=(0.0001, 0.3)):
    """A policy over a look-up and a head, in a world where the policy's own work shows or not."""
    world = Working(list(alphas), list(costs))
    world.work = work
    return AutoPolicy(AutoOptions(), [Arm(name="look-up"), Arm(name="head", listens=True)]), world


def write(policy, world, number, *, tokens=64, asks=None, settled=None, drawn=False):
    """One text: who was spared it, who rests near its end, and in how many rounds was guessed."""
    seq = sequence(number, max_tokens=tokens, asks=asks)
    if drawn:
        seq.request = replace(seq.request, params=replace(seq.request.params, temperature=1.0))
    if settled is not None:
        seq.settled = settled
    left = resting = policy.spare(seq, 1)
    guessed = 0
    while seq.room > 0:
        is_near_its_end = seq.room < NEAR
        budgets = policy.plan([seq])
        resting = resting if is_near_its_end else budgets[0].resting  # who has much to read is not asked at the end
        guessed += budgets[0].depth > 0
        policy.update(world.step([seq], budgets, number))
    policy.end([seq])
    return left, resting, guessed


@pytest.mark.parametrize(
    ("work", "alpha", "left"),
    [
        (0.05, 0.05, {HEAD}),  # the look-up does not listen, and stays
        (0.001, 0.05, set()),  # its listening costs next to nothing
    ],
)
def test_a_listener_leaves_where_listening_shows_and_is_spared_the_next_texts(work, alpha, left):
    policy, world = engine([0.0, alpha], work)
    texts = [write(policy, world, number) for number in range(31)]
    assert [resting for _, resting, _ in texts[6:]] == [left] * 25
    assert [spared for spared, _, _ in texts[:9]] == [set()] * 9  # few texts say little of others
    assert [spared for spared, _, _ in texts[9:25]] == ([left] * 7 + [set()]) * 2  # behind seven one is heard


def test_one_that_pays_is_never_spared():
    """Though the last token of a text cannot be guessed, and some texts are short, or ask for plain decoding."""
    policy, world = engine([0.0, 0.8], costs=(0.0001, 0.1))
    asked = [*[{}] * 6, *[{"tokens": 2}] * 4, *[{}] * 3, *[{"asks": 0}] * 4]
    texts = [write(policy, world, number, **asked[number % len(asked)]) for number in range(85)]
    assert not any(spared for spared, _, _ in texts)
    assert min(guessed for number, (_, _, guessed) in enumerate(texts) if not asked[number % len(asked)]) > 5


def test_one_that_pays_leaves_no_text_because_another_arm_shines_there():
    policy, world = engine([lambda number, _: 0.98 if number % 2 else 0.0, 0.8], costs=(0.0001, 0.1))
    texts = [write(policy, world, number, tokens=160) for number in range(12)]
    assert not any(resting for _, resting, _ in texts)


def test_texts_on_which_another_arm_shines_do_not_take_it_from_the_others():
    policy, world = engine([lambda _, seq: 0.98 if seq % 8 == 4 else 0.0, 0.8], costs=(0.0001, 0.1))
    texts = [write(policy, world, number, tokens=120) for number in range(64)]
    assert sum(bool(spared) for spared, _, _ in texts) == 0


def changing(other, seed):
    """Tokens a second of texts on which the head begins to be right, after 200 on which it was not."""
    world = Working([0.0, lambda _, seq: 0.8 if seq >= 200 else 0.05], [0.0001, 0.1], dice=random.Random(seed))
    world.work = 0.05
    policy = AutoPolicy(AutoOptions(), [Arm(name="look-up"), Arm(name="head", listens=True)])
    guessed = [write(policy, world, number, **(other if number % 2 else {}))[2] for number in range(600)]
    return sum(number > 5 for number in guessed[500::2])


@pytest.mark.parametrize("other", [{}, {"drawn": True}, {"tokens": 2}, {"asks": 0}, {"asks": 8}])
def test_it_is_found_again_where_every_other_text_is_of_another_kind(other):
    assert [changing(other, seed) > 25 for seed in range(2)] == [True, True]  # of the last 50


def test_of_8_batches_one_is_listened_to_for_a_while():
    listeners = Listeners([HEAD])
    far(listeners)
    heard = [not spared(listeners) for _ in range(8 * 7 + 2)]
    assert heard == [False] * (8 * 7 - 3) + [True] * 5  # three had left
    assert not let_go(listeners, text(listeners, age=15))
    assert not let_go(listeners, text(listeners, age=16), deepest=0)  # nothing could be guessed: it is not heard out
    assert let_go(listeners, text(listeners, age=16)) == {HEAD}
    assert [not spared(listeners) for _ in range(8 * 7 + 1)] == [False] * 8 * 7 + [True]


def test_the_texts_that_a_request_decides_itself_do_not_count():
    policy, world = engine([0.0, 0.05])
    for number in range(12):
        write(policy, world, number)
    for number in range(12, 52):
        write(policy, world, number, settled=Settled(depth=2))
    assert policy.spare(sequence(52), 1) == {HEAD}


def test_a_text_that_begins_again_is_counted_once():
    seq = sequence()
    assert SequenceRecord([ArmRecord(32.0)], 32.0, seq).counted == frozenset()
    seq.num_preempted = 1
    assert SequenceRecord([ArmRecord(32.0)], 32.0, seq).counted == {0}


def test_it_is_spared_once_it_would_have_left_some_texts_in_a_row():
    listeners = Listeners([HEAD])
    far(listeners, 2)
    assert not spared(listeners)
    far(listeners, 3, counted={HEAD})  # it was near to paying in an earlier plan
    for _ in range(3):
        let_go(listeners, text(listeners), deepest=8)  # it may not be guessed as deep as others
    assert not spared(listeners)
    far(listeners, 1)
    assert spared(listeners) == {HEAD}


def test_who_guesses_stays():
    listeners = Listeners([HEAD])
    far(listeners, choice=(HEAD, 3))
    assert not let_go(listeners, text(listeners, choice=(HEAD, 3))) and not spared(listeners)


def test_a_smaller_batch_and_texts_of_another_sort_are_noticed():
    listeners = Listeners([HEAD])
    far(listeners, is_drawn=True)
    assert spared(listeners, 8, is_drawn=True) == spared(listeners, 9, is_drawn=True) == {HEAD}
    assert not spared(listeners, 7, is_drawn=True) and not spared(listeners, 8)
    far(listeners, is_drawn=True, crowd=4)
    assert spared(listeners, 4, is_drawn=True) == {HEAD}


@pytest.mark.parametrize("deepest", [16, 8])
def test_a_plan_in_which_it_is_not_far_from_paying_has_it_listen_again(deepest):
    listeners = Listeners([HEAD])
    far(listeners)
    let_go(listeners, text(listeners, crowd=4), promise=0.97)  # says nothing of larger batches
    assert spared(listeners) == {HEAD}
    let_go(listeners, text(listeners, age=20), promise=0.97, deepest=deepest)
    assert not spared(listeners)
    far(listeners)
    let_go(listeners, text(listeners), work=0.001)  # listening shows no more
    assert not spared(listeners)


@pytest.mark.parametrize("settled", [Settled(arm=HEAD, resting=frozenset({LOOK_UP})), Settled(depth=4)])
def test_a_request_that_decides_itself_has_what_it_asks_for(settled):
    policy, world = engine([0.0, 0.05])
    for number in range(12):
        write(policy, world, number)
    left, resting, _ = write(policy, world, 8, settled=settled)
    assert left == settled.resting and HEAD not in resting
    assert write(policy, world, 9)[0] == {HEAD} and not policy._texts


@pytest.mark.parametrize(("alpha", "cost", "leaves"), [(0.05, 0.3, True), (0.8, 0.1, False)])
def test_a_head_that_is_alone_leaves_too_and_stays_where_it_pays(alpha, cost, leaves):
    world = Working([alpha], [cost])
    world.work = 0.05
    policy = AutoPolicy(AutoOptions(), [Arm(name="head", listens=True)])
    texts = [write(policy, world, number) for number in range(33)]
    assert sum(bool(spared) for spared, _, _ in texts[17:]) == 14 * leaves  # behind seven texts one is heard
    assert all((guessed < 10) == leaves for _, _, guessed in texts)


def test_where_nothing_may_be_guessed_no_arm_hears_of_a_text():
    policy = AutoPolicy(AutoOptions(num_speculative_tokens=0), [Arm(name="look-up"), Arm(name="head", listens=True)])
    assert policy.spare(sequence(0), 1) == {HEAD}
    world, seq = Working([0.0, 0.5], [0.0001, 0.3]), sequence(0)
    budgets = policy.plan([seq])
    assert budgets == [Budget(depth=0, resting=frozenset({HEAD}))]
    policy.update(world.step([seq], budgets, 0))
    assert not policy.costs.passes.is_measured
