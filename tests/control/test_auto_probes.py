"""Probes and watched arms of the policy `auto`, with made-up costs: what is tried next, and when."""

import random
from collections import Counter
from dataclasses import replace
from itertools import count
from statistics import median

import pytest
from control.world import Working, sequence

from outdraft.control.auto.exploring import Probe, Probes, Watcher
from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.control.auto.records import ArmRecord, SequenceRecord, recall_all
from outdraft.control.shared.acceptance import TextOutlook
from outdraft.control.shared.costs import ArmDepth
from outdraft.core.draft import chain
from outdraft.core.events import StepTimes
from outdraft.core.policy import Arm


class Draft:
    """Seconds of a guess by its depth."""

    def __init__(self, seconds: float, quickest: float | None = None) -> None:
        self.seconds, self.shortest = seconds, seconds if quickest is None else quickest

    def __call__(self, depth: int, crowd: int = 1) -> float:
        return self.seconds

    def of(self, crowd: int) -> "Draft":
        return self

    def quick(self, depth: int) -> float:
        return min(self.seconds, 2 * self.shortest)


class Prices:
    """A second a pass, however many rows it has."""

    def __init__(self, *drafts: Draft, behind: float = 0.0) -> None:
        self.drafts, self.behind = drafts, behind

    def passes(self, rows: float) -> float:
        return 1.0

    def catch_up(self, seq: int, arm: int) -> float:
        return self.behind


def prepared(prices: Prices, share: float = 1.0) -> Probes:
    """One sequence, decoded plainly, of which the one arm is to be tried."""
    probes, records, seq = Probes(share), [ArmRecord(256.0)], sequence(0)
    texts = {seq.id: SequenceRecord(records, 32.0, seq)}
    probes.prepare([seq], texts, records, prices, rate=1.0, watched=())
    return probes


@pytest.mark.parametrize(("behind", "rounds"), [(0.0, 4), (4.0, 4), (6.0, 5), (8.0, 7)])
def test_what_an_arm_has_to_catch_up_is_saved_up_too(behind, rounds):
    probes = prepared(prices := Prices(Draft(1.0), behind=behind))
    needed = next(i for i in range(20) if (probes.save(1, 1.0, prices), probes.take())[1] is not None) + 1
    assert needed == rounds
    assert probes.take() is None, "it is made once"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_sequence_meets_every_arm(count):
    """Two arms out of use, and as many sequences or others: none of them is always given the same one."""
    prices, records = Prices(Draft(0.0), Draft(0.0)), [ArmRecord(256.0), ArmRecord(256.0)]
    seqs = [sequence(i) for i in range(count)]
    texts = {seq.id: SequenceRecord(records, 32.0, seq) for seq in seqs}
    probes, met = Probes(1.0), set()
    for _ in range(2 * count):
        probes.prepare(seqs, texts, records, prices, rate=float(count), watched=())
        probes.save(4, 1.0, prices)
        probe = probes.take()
        met.add((probe.seq_id, probe.choice.arm))
    assert len(met) == 2 * count


def test_one_that_cannot_be_paid_does_not_keep_the_others_from_their_turn():
    """An arm that guesses for nothing, and one whose loss is above what can be saved: plans come and go."""
    prices, records, seq = Prices(Draft(0.0), Draft(20.0)), [ArmRecord(256.0), ArmRecord(256.0)], sequence()
    texts, probes, met = {seq.id: SequenceRecord(records, 32.0, seq)}, Probes(1.0), Counter()
    for _ in range(200):
        probes.prepare([seq], texts, records, prices, rate=1.0, watched=())
        probes.save(4, 1.0, prices)
        if (probe := probes.take()) is not None:
            met[probe.choice.arm] += 1
    assert set(met) == {0} and met[0] > 15


def test_plans_between_two_probes_give_no_arm_the_turn_of_another():
    """Each arm has its turn, though every probe is prepared three times before it can be paid."""
    prices, records, seq = Prices(Draft(1.0), Draft(1.0)), [ArmRecord(256.0), ArmRecord(256.0)], sequence()
    texts, probes, met = {seq.id: SequenceRecord(records, 32.0, seq)}, Probes(0.25), Counter()
    for _ in range(300):
        probes.prepare([seq], texts, records, prices, rate=1.0, watched=())
        probes.save(2, 1.0, prices)
        if (probe := probes.take()) is not None:
            met[probe.choice.arm] += 1
    assert abs(met[0] - met[1]) <= 1 and met[0] > 5


def test_who_is_to_be_heard_for_a_while_is_asked_first():
    prices, records, seq = Prices(Draft(0.0), Draft(0.0)), [ArmRecord(256.0), ArmRecord(256.0)], sequence()
    text, probes, met = SequenceRecord(records, 32.0, seq), Probes(1.0), set()
    text.heard = frozenset({1})
    for _ in range(6):
        probes.prepare([seq], {seq.id: text}, records, prices, rate=1.0, watched=())
        probes.save(4, 1.0, prices)
        met.add(probes.take().choice.arm)
    assert met == {1}


def test_a_sequence_that_is_over_is_not_probed():
    probes = prepared(prices := Prices(Draft(0.0)))
    probes.save(9, 1.0, prices)
    probes.drop(1)
    probes.drop(0)
    assert probes.take() is None


def test_what_is_saved_has_a_bound_and_so_has_what_is_owed():
    probes = prepared(prices := Prices(Draft(1.0), behind=9.5))
    probes.save(1000, 1.0, prices)
    assert probes.take() is None, "its loss is above what can be saved"
    probes = prepared(prices := Prices(Draft(0.0)))
    probes.save(1, 0.0, prices, won=-1000.0)
    probes.save(3, 1.0, prices)
    assert probes.take() is None
    probes.save(6, 1.0, prices)
    assert probes.take() is not None


@pytest.mark.parametrize(
    ("usual", "quickest", "is_free"), [(0.019, 0.019, True), (0.5, 0.009, True), (0.5, 0.3, False)]
)
def test_a_guess_that_was_slow_once_does_not_end_the_watch(usual, quickest, is_free):
    """Whatever else ran meanwhile made it slow: its quickest guess says what a look costs."""
    watcher = Watcher([Arm(name="look-up", peek=lambda seq, budget: chain([1]))], 16)
    assert watcher.free(Prices(Draft(usual, quickest))) == ({0: min(usual, 2 * quickest)} if is_free else {})


def test_of_a_large_batch_some_are_watched_in_turn():
    asked = Counter()

    def peek(seq, budget):
        asked[seq.id] += 1
        return chain([1, 2])

    prices, seqs = Prices(Draft(0.01)), [sequence(i) for i in range(6)]
    watcher = Watcher([Arm(name="look-up", peek=peek)], 16)
    texts = {seq.id: SequenceRecord([ArmRecord(256.0)], 32.0, seq) for seq in seqs}
    for _ in range(6):
        watcher.watch(seqs, {seq.id: ArmDepth(0, 0) for seq in seqs}, texts, prices)
    assert asked == dict.fromkeys(range(6), 2)


def test_what_a_look_up_said_before_a_forced_round_is_forgotten():
    """A mask left no choice in that round, so the policy has not heard of it; then another text is looked at."""
    prices, seqs, records = Prices(Draft(0.02)), [sequence(0), sequence(1)], [ArmRecord(256.0)]
    watcher = Watcher([Arm(name="look-up", peek=lambda seq, budget: chain([1, 2]))], 16)
    texts = {seq.id: SequenceRecord(records, 32.0, seq) for seq in seqs}
    prices.passes = lambda rows: 1.01
    for seen in ({0}, {1}):
        watcher.watch(seqs, {seq.id: ArmDepth(0, 0) for seq in seqs}, texts, prices)
        assert {seq for seq, text in texts.items() if text.watched} == seen


def test_the_probe_of_a_batch_that_has_changed_waits_for_the_next_plan():
    """It would be settled by what was planned for a smaller batch, and seem to have won."""
    world, seqs = Working([0.0, 0.0], [0.3, 0.3], slope=0.0), [sequence(number) for number in range(16)]
    policy = AutoPolicy(AutoOptions(), [Arm(name="a"), Arm(name="b")])
    in_milliseconds(world, policy, seqs[:2], 200)
    policy._nap.rounds_left, policy._until_plan, policy._pause = 0, 9.0, 9.0
    taken = []
    policy._probes.take = lambda: taken.append(1) or Probe(0, ArmDepth(0, 2), 0.0)
    in_milliseconds(world, policy, seqs, 1)
    assert policy._planned == [0, 1] and not taken and policy._probe is None
    policy._until_plan = 0.0
    in_milliseconds(world, policy, seqs, 1)
    assert len(policy._planned) == 16 and policy._probe is not None


def test_greedy_and_drawn_texts_are_kept_apart():
    """What one sort has taught is the first guess about the other, until that has shown something of its own."""
    policy = AutoPolicy(AutoOptions(), [Arm(name="one")])

    def new(drawn: bool) -> TextOutlook:
        seq = sequence(next(numbers))
        params = replace(seq.request.params, temperature=0.8 if drawn else 0.0)
        seq = replace(seq, request=replace(seq.request, params=params))
        policy.plan([seq])
        return policy._texts[seq.id].outlooks[0]

    def chance(drawn: bool) -> float:
        return new(drawn).survivals(1)[0]

    numbers = count()
    start = chance(False), chance(True)
    assert start[0] == start[1]
    for _ in range(40):
        new(False).add(4, 4)
    assert chance(False) > chance(True) > start[1] + 0.1
    for _ in range(40):
        new(True).add(4, 0)
    assert chance(False) > 0.9 and chance(True) < 0.1
    kept = {"one": policy._arms[0].kept()}
    (again,) = recall_all(kept, ["one"], 256.0)
    assert again.hazards[False].hazards(0, 1)[0] < 0.1 < 0.9 < again.hazards[True].hazards(0, 1)[0]
    assert [one.num_texts for one in again.hazards] == [4, 4], "few of the 40 texts of each sort count"
    (greedy, _) = kept["one"]["hazards"]
    with pytest.raises(ValueError):  # of a version that did not tell them apart
        recall_all({"one": {**kept["one"], "hazards": greedy}}, ["one"], 256.0)


def in_milliseconds(world, policy, seqs, rounds, start=0):
    """Rounds of a tiny model: a pass takes 0.3 ms, the policy's own work 15 % of it. Returns the first's budgets."""
    budgets = []
    for number in range(start, start + rounds):
        planned = policy.plan(seqs)
        budgets.append(planned[0])
        events = world.step(seqs, planned, number)
        times = [StepTimes(draft=one.times.draft * 3e-4, target=one.times.target * 3e-4) for one in events]
        policy.update([replace(one, times=each) for one, each in zip(events, times, strict=True)])
    return budgets


def test_an_arm_that_becomes_good_is_found_behind_naps():
    found = []
    for seed in range(5):
        world = Working([lambda number, _: 0.95 if number >= 600 else 0.1, 0.1], [0.3, 0.3], dice=random.Random(seed))
        world.work = 0.15
        policy, seqs = AutoPolicy(AutoOptions(), [Arm(name="a"), Arm(name="b")]), [sequence()]
        in_milliseconds(world, policy, seqs, 600)
        budgets = in_milliseconds(world, policy, seqs, 400, start=600)
        found.append(next((i for i, one in enumerate(budgets) if one.depth and one.arm == 0), 400))
    assert median(found) < 100


@pytest.mark.parametrize(("num_texts", "least", "most"), [(1, 20, 34), (6, 3, 14)])
def test_a_probe_that_was_wrong_leaves_the_plan_and_one_that_was_right_has_it_made_anew(num_texts, least, most):
    """A plan takes a hundredth of 20 rounds for one text, and of 120 for six, whether they are looked at or not."""
    world, seqs = Working([0.0, 0.0], [0.3, 0.3], slope=0.0), [sequence(number) for number in range(num_texts)]
    world.work = 0.15
    policy = AutoPolicy(AutoOptions(), [Arm(name="a"), Arm(name="b")])
    in_milliseconds(world, policy, seqs, 200)
    plans, probes, make, take = [], [], policy._make_plan, policy._probes.take
    policy._make_plan = lambda seqs: plans.append(1) or make(seqs)
    policy._probes.take = lambda: probes.append(take()) or probes[-1]
    in_milliseconds(world, policy, seqs, 600)
    assert sum(probe is not None for probe in probes) > 5 and least <= len(plans) <= most
    world.alphas = [1.0, 1.0]
    probes.clear()
    while not any(probe is not None for probe in probes):
        in_milliseconds(world, policy, seqs, 1)
    plans.clear()
    in_milliseconds(world, policy, seqs, 1)
    assert plans


def test_a_probe_that_a_request_cuts_to_nothing_says_nothing():
    world, seq = Working([0.0], [0.3]), sequence()
    world.work = 0.15
    policy = AutoPolicy(AutoOptions(), [Arm(name="a")])
    in_milliseconds(world, policy, [seq], 200)
    policy._nap.rounds_left, policy._until_plan = 0, 9.0
    seq.request = replace(seq.request, num_speculative_tokens=0)
    policy._probes.take = lambda: Probe(seq.id, ArmDepth(0, 4), 0.0)
    (budget,) = in_milliseconds(world, policy, [seq], 1)
    assert policy._probe is not None and not budget.depth and policy._until_plan > 0
