"""What policies are made of: measured curves, hazards that forget, the speed-up formulas."""

import random

import pytest
from control.world import ARMS, sequence

from outdraft.analysis.theory import best_length
from outdraft.control.shared import acceptance
from outdraft.control.shared.acceptance import Hazards, TextOutlook
from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import ArmDepth, MeasuredCosts
from outdraft.control.shared.curve import CostCurve
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


def test_a_batch_pays_for_all_its_rows():
    """Four alike: the depth of one whose costs are a quarter of the batch's, and four times its tokens a second."""
    passing, drafting = lambda rows: 1 + 0.03 * rows**1.5, lambda k: 0.1 + 0.05 * k
    batch = best_depth(constant(0.8), draft_cost=drafting, pass_cost=passing, nodes=lambda k: 2 * k, count=4)
    share = best_depth(
        constant(0.8),
        draft_cost=lambda k: drafting(k) / 4,
        pass_cost=lambda r: passing(4 * r) / 4,
        nodes=lambda k: 2 * k,
    )
    assert batch == pytest.approx(share)
    alone = best_depth(constant(0.8), draft_cost=drafting, pass_cost=passing, nodes=lambda k: 2 * k)
    assert batch[0] < alone[0] and batch[1] > alone[1]


def test_a_dent_in_a_curve_is_no_top():
    pass_cost = {1: 1.0, 2: 1.0, 3: 1.6, 4: 1.0, 5: 1.0}.get
    assert best_depth([0.9, 0.8, 0.7, 0.6], draft_cost=lambda k: 0.01 * k, pass_cost=pass_cost)[0] == 4


def test_a_curve_learns_kinks_noise_and_drift():
    dice, curve = random.Random(2), CostCurve(0.98, 0.02)
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


@pytest.mark.parametrize("first", [0.1, 1.0, 10.0])
def test_a_first_measurement_that_was_none_is_forgotten(first):
    """The first guess of a text is often none at all, and a first pass warms the machine up."""
    dice, curve = random.Random(1), CostCurve(0.1, 0.9)
    curve.add(4, 1.8 * first)
    for number in range(300):
        x = 4 if number < 250 or number % 2 else 8
        curve.add(x, (0.2 + 0.4 * x) * dice.uniform(0.95, 1.05) * (1.6 if dice.random() < 0.05 else 1))
    for x in (4, 8):
        assert curve(x) == pytest.approx(0.2 + 0.4 * x, rel=0.06)
    assert curve(12) == pytest.approx(5.0, rel=0.2)


def test_no_seconds_are_negative_below_a_steep_part():
    curve = CostCurve(0.98, 0.02)
    for rows, seconds in ((1, 0.01), (8, 0.02), (64, 3.0), (64, 3.0), (256, 20.0)):
        curve.add(rows, seconds)
    assert all(curve(rows) > 0 for rows in range(1, 300))
    assert 0 < curve(1) < 0.1


def test_hazards_are_those_of_the_rounds():
    hazards, state = Hazards(1e9), 1
    for depth, accepted in [(4, 4), (4, 0), (4, 2), (2, 2), (3, 1)]:
        hazards.add(state, depth, accepted)
    stops, reached = [1, 1, 1, 0], [5, 4, 2, 1]
    anywhere = (3 + 1) / (12 + 4)
    later = (2 + 4 * anywhere) / (7 + 4)
    wanted = [
        (s + 4 * (later if i else anywhere)) / (r + 4) for i, (s, r) in enumerate(zip(stops, reached, strict=True))
    ]
    assert hazards.hazards(state, 4) == pytest.approx(wanted)
    assert hazards.hazards(state, 6)[4:] == pytest.approx([later] * 2)  # deeper than ever asked
    assert hazards.hazards(0, 2) == pytest.approx([anywhere] * 2)  # a state never seen


def throw(dice, depth, alpha):
    return next((i for i in range(depth) if dice.random() > alpha), depth)


def test_weights_that_begin_anew_change_no_hazard(monkeypatch):
    """They grow by a quarter a round here, so they begin anew every 93 rounds."""
    anew, never, dice = Hazards(4), Hazards(4), random.Random(5)
    for _ in range(300):
        state, depth = dice.randrange(4), dice.randrange(1, 6)
        accepted = dice.randint(0, depth)
        anew.add(state, depth, accepted)
        with monkeypatch.context() as patch:
            patch.setattr(acceptance, "_LARGEST", float("inf"))
            never.add(state, depth, accepted)
    assert never._unit > 1e9 >= anew._unit
    for state in range(4):
        assert anew.hazards(state, 7) == pytest.approx(never.hazards(state, 7))


def test_a_text_leans_on_others_and_goes_its_own_way():
    common, dice, others = Hazards(300), random.Random(3), None
    for number in range(400):
        others = others if number % 40 else TextOutlook(common, 32)
        others.add(4, throw(dice, 4, 0.5))
    own = TextOutlook(common, 32)
    assert 0.35 < own.survivals(1)[0] < 0.65  # nothing of its own yet
    for _ in range(60):
        own.add(4, throw(dice, 4, 0.95))
    assert own.survivals(1)[0] > 0.7
    for _ in range(60):
        own.add(1, 0)
    assert own.survivals(1)[0] < 0.3
    for _ in range(40_000):  # weights begin anew before they overflow
        own.add(2, 1)
    assert own.survivals(2)[0] > 0.9 > 0.1 > own.survivals(2)[1]


@pytest.mark.parametrize(("chance", "least"), [(0.05, 0.4), (0.9, 0.85)])
def test_one_text_says_little_of_others_unless_it_was_good(chance, least):
    """What a first text has shown is an arm's worst; what ten have shown is what it is."""
    common, dice, expected = Hazards(300), random.Random(3), []
    for _ in range(10):
        text = TextOutlook(common, 32)
        expected.append(text.survivals(1)[0])
        for _ in range(30):
            text.add(4, throw(dice, 4, chance))
    assert expected[1] > least and abs(expected[-1] - chance) < 0.2
    assert text.survivals(1)[0] < expected[-1] + 0.05  # and its own rounds count for more than that


def test_what_another_process_heard_counts_as_few_texts():
    known, again = Hazards(300), [Hazards(300) for _ in range(2)]
    for _ in range(40):
        TextOutlook(known, 32).add(4, 0)
    again[0].recall(known.kept(), known.num_texts)
    again[1].recall(known.kept(), 0)
    bad, *known_of = (TextOutlook(one, 32).survivals(1)[0] for one in (known, *again))
    assert bad < 0.1 < 0.2 < known_of[0] < 0.5 < known_of[1]
    greedy, drawn, alone = Hazards(300), Hazards(300), Hazards(300)
    drawn.kin, greedy.num_texts = greedy, 6
    for one in (drawn, alone):
        for _ in range(9):
            one.add(0, 1, 0)
    assert drawn.hazards(0, 1, 0)[0] > alone.hazards(0, 1, 0)[0], "texts of the other sort count"


def test_the_last_round_tells_of_the_next():
    """Copies come in runs: after a guess that was right another one is likely, whatever the mean is."""
    common, dice, wrong, right = Hazards(1e4), random.Random(4), [], []
    own = TextOutlook(common, 32)
    for number in range(600):
        lucky = number // 6 % 2
        (right if lucky and number % 6 > 1 else wrong if number % 6 > 1 else []).append(own.survivals(2)[1])
        own.add(6, 6 if lucky else throw(dice, 6, 0.1))
    assert min(right[60:]) > 0.6 > 0.4 > max(wrong[60:])


def test_what_was_not_seen_weighs_less():
    common = Hazards(300)
    for _ in range(100):
        TextOutlook(common, 32).add(4, 2)
    own = TextOutlook(common, 32)
    usual = own.survivals(1)[0]
    for _ in range(20):
        own.add(4, 0)
    low = own.survivals(1)[0]
    for _ in range(400):
        own.miss()
    assert low < own.survivals(1)[0] and own.survivals(1)[0] == pytest.approx(common_start(common), abs=1e-3)
    assert low < 0.3 < usual


def test_a_text_hears_what_others_teach_meanwhile():
    """One that began first, and has not been guessed, expects what one that begins now does."""
    common = Hazards(300)
    first = TextOutlook(common, 32)
    for _ in range(10):
        other = TextOutlook(common, 32)
        for _ in range(8):
            other.add(4, 0)
    assert first.survivals(3) == TextOutlook(common, 32).survivals(3) and first.survivals(1)[0] < 0.3


def common_start(common):
    """What a new text begins with."""
    return TextOutlook(common, 32).survivals(1)[0]


def event(seq, *, rows, draft=0.0, target=1.0, certain=0, tokens=1):
    times = StepTimes(draft=draft, target=target)
    return StepEvent(seq_id=seq, tokens=(1,) * tokens, num_nodes=rows, num_certain=certain, times=times)


def test_costs_belong_to_the_batch_and_catching_up_is_kept_apart():
    costs = MeasuredCosts(ARMS[:2])
    costs.add([event(0, rows=1, certain=500, target=9.0)], {})  # a prompt: no pass of a round
    for _ in range(5):
        costs.add([event(0, rows=5, draft=0.2), event(1, rows=3, draft=0.2)], {0: ArmDepth(0, 4), 1: ArmDepth(0, 2)})
    assert costs.passes(8) == pytest.approx(2.0) and costs.drafts[0](4, 2) == pytest.approx(0.4)
    assert not costs.drafts[1].is_measured
    costs = MeasuredCosts(ARMS[:1])
    for _ in range(4):
        costs.add([event(0, rows=3, draft=0.1)], {0: ArmDepth(0, 2)})
    for _ in range(50):
        costs.add([event(0, rows=1)], {0: ArmDepth(0, 0)})
    assert costs.catch_up(0, 0) == 0.0  # what a missed token costs is not known yet
    costs.add([event(0, rows=3, draft=5.125)], {0: ArmDepth(0, 2)})
    assert costs.drafts[0](2) == pytest.approx(0.1)
    costs.add([event(0, rows=1, tokens=20)], {0: ArmDepth(0, 0)})
    assert costs.catch_up(0, 0) == pytest.approx(20 * 0.1)
    costs.forget(0)
    assert costs.catch_up(0, 0) == 0.0


class Known:
    """A curve that knows one cost, and keeps what it is given."""

    def __init__(self, usual, num_measured=5):
        self.usual, self.num_measured, self.told = usual, num_measured, []

    def count(self, depth, crowd):
        return self.num_measured

    def __call__(self, depth, crowd):
        return self.usual

    def add(self, depth, seconds, crowd):
        self.told.append((depth, seconds, crowd))


def test_arms_that_guess_in_one_step_share_its_seconds_as_what_is_known_of_them_says():
    """One needs a second for its guess, another three: of eight seconds for both, two and six."""
    costs = MeasuredCosts(ARMS[:3])
    costs.drafts = curves = [Known(1.0), Known(3.0), Known(5.0)]
    events = [event(0, rows=3, draft=5.0), event(1, rows=4, draft=3.0), event(2, rows=2, draft=0.0)]
    costs.add(events, {0: ArmDepth(0, 2), 1: ArmDepth(1, 3), 2: ArmDepth(0, 1)})
    (told,), (other,), none = (curve.told for curve in curves)
    assert told == pytest.approx((2, 2.0, 2)) and other == pytest.approx((3, 6.0, 1)) and not none


@pytest.mark.parametrize(
    ("usual", "num_measured", "seconds", "wanted"),
    [
        ((5.0, 1.0), (0, 24), 2.0, (1.0317, 0.9683)),  # of 4 less than is known, 5 parts and 1 / 25
        ((5.0, 0.2), (0, 24), 0.3, (0.1078, 0.1922)),
        ((5.0, 0.2), (24, 0), 0.3, (0.3, None)),  # less than nothing is left for the other
        ((0.0, 0.2), (0, 24), 1.2, (0.9934, 0.2066)),  # what never was measured may have taken it all
        ((0.0, 0.2), (0, 24), 0.1, (None, 0.1)),
        ((0.0, 0.0), (0, 0), 1.0, (None, None)),
        ((1.0, 3.0), (5, 5), 0.0, (None, None)),
    ],
)
def test_what_is_known_least_is_corrected_most(usual, num_measured, seconds, wanted):
    """Of arms that guess in one step; one of them may have been measured while the machine was busy, or never."""
    costs = MeasuredCosts(ARMS[:2])
    costs.drafts = curves = [Known(*one) for one in zip(usual, num_measured, strict=True)]
    costs.add([event(0, rows=3, draft=seconds), event(1, rows=4)], {0: ArmDepth(0, 2), 1: ArmDepth(1, 3)})
    found = [curve.told[0][1] if curve.told else 0.0 for curve in curves]
    assert [max(0.0, one) or None for one in found] == [one and pytest.approx(one, abs=1e-4) for one in wanted]


def test_who_guesses_while_others_read_their_prompts_has_seen_its_text():
    """Half of the passes read a prompt, so they show no costs; a guess in one of the others has missed nothing."""
    costs, asked = MeasuredCosts(ARMS[:1]), {0: ArmDepth(0, 2)}
    for _ in range(10):
        costs.add([event(0, rows=3, draft=9.0), event(1, rows=1, certain=8)], asked)
        costs.add([event(0, rows=3, draft=0.5)], asked)
    assert costs.drafts[0](2) == pytest.approx(0.5)


def test_an_arm_that_has_guessed_once_alone_is_priced_by_that():
    """Until it guesses twice in a row, all that it took is what it takes to read a token."""
    costs = MeasuredCosts(ARMS[:1])
    costs.add([event(0, rows=1, certain=20, tokens=0)], {})
    costs.add([event(0, rows=3, draft=4.0)], {0: ArmDepth(0, 2)})
    costs.doze(1, 30)
    assert not costs.drafts[0].is_measured and costs.catch_up(1, 0) == pytest.approx(6.0)
    costs.add([event(0, rows=3, draft=0.5)], {0: ArmDepth(0, 2)})
    assert costs.drafts[0](2) == pytest.approx(0.5) and costs.catch_up(1, 0) == 0.0


def test_a_request_limits_every_policy():
    assert allowed(sequence(asks=3), 8) == 3 and allowed(sequence(asks=0), 8) == 0 and allowed(sequence(), 8) == 8
    assert allowed(sequence(asks=9), 8) == 8 and allowed(sequence(max_tokens=4), 8) == 3


def test_where_plain_decoding_is_no_choice_the_best_guess_is_found_below_it():
    asked = {"draft_cost": lambda k: 0.5 * k, "pass_cost": lambda rows: 1.0}
    assert best_depth(constant(0.3), **asked) == (0, 1.0)
    assert best_depth(constant(0.3), **asked, least=1) == (1, pytest.approx(1.3 / 1.5))
    assert best_depth([], **asked, least=1)[1] == 0.0
    paying = {**asked, "draft_cost": lambda k: 0.05 * k}
    assert best_depth(constant(0.8), **paying, least=1) == best_depth(constant(0.8), **paying)
