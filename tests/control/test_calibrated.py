"""The calibrated policy: a map fitted online, handed to the drafter, and a theta from measured seconds.

The planted drafter knows something, and overstates it: it says c ** 0.25 where the chance is c.
"""

import random
from itertools import pairwise

import pytest
import torch
from control.world import ARMS, sequence

from outdraft.control.calibrated import CalibratedOptions, CalibratedPolicy
from outdraft.control.shared.reliability import UNFITTED, Reliability
from outdraft.core.calibration import Calibration, Knot
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.policy import Budget
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.composed.ahead import AheadGuess
from outdraft.drafters.shared.limits import Cutoff, cutoffs_of
from outdraft.drafters.shared.trees.shapes import Beam
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.options.errors import ConfigError

DRAFT, PASS, ROW = 0.12, 1.0, 0.02  # seconds of a draft token, of a pass and of each row in it


def planted(dice):
    """(what the drafter says, whether the target agrees) of one token: half of them are easy."""
    chance = dice.uniform(0.9, 0.99) if dice.random() < 0.6 else dice.uniform(0.05, 0.6)
    return chance**0.25, dice.random() < chance


def calibration_error(pairs, bins=15):
    """Expected calibration error: |said - found| by bins of equal width, weighted by their tokens."""
    held = [[] for _ in range(bins)]
    for said, accepted in pairs:
        held[min(int(said * bins), bins - 1)].append((said, accepted))
    return sum(abs(sum(said for said, _ in one) - sum(kept for _, kept in one)) for one in held) / len(pairs)


def auc(pairs):
    """Chance that an accepted token is said to be surer than a rejected one."""
    kept, lost = [s for s, a in pairs if a], [s for s, a in pairs if not a]
    return sum((a > b) + 0.5 * (a == b) for a in kept for b in lost) / (len(kept) * len(lost))


def test_the_error_of_calibration_falls_on_tokens_not_seen():
    dice, learned = random.Random(0), Reliability(2000)
    for _ in range(4000):
        learned.add(*planted(dice))
    fresh = [planted(dice) for _ in range(2000)]
    fitted = learned.fit()
    after = [(fitted(said), accepted) for said, accepted in fresh]
    assert calibration_error(fresh) > 0.12
    assert calibration_error(after) < 0.035
    assert auc(after) > 0.7 and auc(after) > auc(fresh) - 0.02
    assert abs(learned.mean - sum(accepted for _, accepted in fresh) / len(fresh)) < 0.05


def test_the_fit_equals_isotonic_regression_by_hand():
    """Bins at 0.5, 0.7 and 0.9 with shares that fall between the first two: these are pooled."""
    learned = Reliability(1e12)
    for said, outcomes in ((0.5, [1] * 6 + [0] * 2), (0.7, [1] * 2 + [0] * 6), (0.9, [1] * 8)):
        for one in outcomes:
            learned.add(said, bool(one))
    pooled = (6 + 2 + 2 * 0.5 + 2 * 0.7) / 20  # two tokens' worth of the drafter's own word in each bin
    fitted = learned.fit()
    assert [knot.found for knot in fitted.knots] == pytest.approx([pooled, pooled, 9.8 / 10])
    assert [knot.said for knot in fitted.knots] == pytest.approx([0.5, 0.7, 0.9])
    assert fitted(0.8) == pytest.approx((pooled + 0.98) / 2) and fitted(0.1) == fitted.knots[0].found


def test_what_was_long_ago_is_forgotten():
    learned = Reliability(50)
    for accepted in (True, False):
        for _ in range(400):
            learned.add(0.8, accepted)
    assert learned.fit()(0.8) < 0.1
    assert Reliability(50).fit() is UNFITTED and UNFITTED(0.37) == pytest.approx(0.37)


def test_any_pairs_make_a_rising_map():
    dice = random.Random(3)
    for _ in range(50):
        learned = Reliability(40)
        for _ in range(dice.randrange(1, 200)):
            learned.add(dice.choice((0.0, 1.0, dice.random(), 1 - 10 ** -dice.uniform(1, 9))), dice.random() < 0.5)
        fitted = learned.fit()
        found = [fitted(i / 100) for i in range(101)]
        assert all(0 <= a <= b <= 1 for a, b in pairwise(found))


def played(policy, rounds, dice, depth=None):
    """(tokens, seconds) of the last two thirds of the rounds; `depth`: a fixed one instead of the policy."""
    tokens = seconds = 0.0
    seq = sequence()
    for number in range(rounds):
        budget = Budget(depth=depth) if depth is not None else policy.plan([seq])[0]
        sures, accepted, survival, right = [], 0, 1.0, True
        for _ in range(budget.depth):
            sure, agrees = planted(dice)
            sures.append(sure)
            right = right and agrees
            accepted += right
            survival *= budget.chance(sure)
            if survival < budget.survival:
                break
        drafted = len(sures)
        times = StepTimes(draft=DRAFT * drafted, target=PASS + ROW * drafted)
        event = StepEvent(
            seq_id=0,
            tokens=(1,) * (accepted + 1),
            num_draft_tokens=drafted,
            draft_depth=drafted,
            num_nodes=drafted + 1,
            num_accepted=accepted,
            rejected=accepted < drafted,
            confidences=tuple(sures[: accepted + 1]),
            times=times,
        )
        if policy:
            policy.update([event])
        if number >= rounds // 3:
            tokens += accepted + 1
            seconds += times.draft + times.target
    return tokens / seconds


def test_tokens_a_second_are_above_those_of_every_fixed_depth():
    best = max(played(None, 9000, random.Random(1), depth) for depth in range(9))
    policy = CalibratedPolicy(CalibratedOptions(), ARMS[0])
    own = played(policy, 9000, random.Random(1))
    assert own > 1.03 * best
    bare = CalibratedPolicy(
        CalibratedOptions(every=10**6, start=policy.theta), ARMS[0]
    )  # the same theta, the drafter's word
    assert own > 1.03 * played(bare, 9000, random.Random(1))


def test_theta_is_the_marginal_rule():
    """A known clock: r tokens a second, d seconds for one token more, m accepted of a judged one."""
    policy = CalibratedPolicy(CalibratedOptions(), ARMS[0])
    rate = played(policy, 6000, random.Random(2))
    assert policy.theta == pytest.approx(rate * (DRAFT + ROW) / policy.reliability.mean, rel=0.15)
    fixed = CalibratedPolicy(CalibratedOptions(theta=0.2), ARMS[0])
    played(fixed, 100, random.Random(2))
    assert fixed.theta == 0.2 and fixed.calibration is not UNFITTED


def says(p):
    """Logits of three tokens of which the first has probability p."""
    return torch.tensor([p, (1 - p) / 2, (1 - p) / 2]).log()


HALF = Calibration((Knot(0.0, 0.0), Knot(1.0, 0.5)))


def test_chains_end_by_the_calibrated_product_and_keep_the_token_that_falls():
    """0.8 thrice: 0.8, 0.64, 0.512 as given; 0.4, 0.16, 0.064 as found. Each sequence by its own budget."""
    seqs = [sequence(i) for i in range(3)]
    fed = []

    def feed(step, rows, tokens, num_open):
        fed.append(list(rows))
        return torch.stack([says(0.8) for _ in rows[:num_open]])

    def whole(*_):
        raise AssertionError("kernels do not know calibrated probabilities")

    budgets = [
        Budget(depth=5, survival=0.2, calibration=HALF),
        Budget(depth=5, survival=0.6, calibration=UNFITTED),
        Budget(depth=5, survival=0.07, calibration=HALF),
    ]
    drafts = grow_chains(seqs, [5] * 3, ChainNetwork(feed=feed, chain=whole), cutoffs_of(budgets), sample="match")
    assert [draft.num_nodes - 1 for draft in drafts] == [2, 3, 3]
    assert fed == [[0, 1, 2], [0, 1, 2], [1, 2]]
    assert drafts[0].confidence.tolist() == pytest.approx([1, 0.8, 0.8])  # as given: they are fitted again


def test_trees_and_guesses_ahead_end_by_it_too():
    tree = Tree(sequence(), Beam(1, 9), max_depth=4, max_nodes=9, cutoff=Cutoff(path=0.3, calibration=HALF))
    tree.add(0, 1, -0.2, 0.8)
    tree.add(1, 1, -0.2, 0.8)
    assert [tree.is_unsure(node) for node in (1, 2)] == [False, True]
    guess, budget = AheadGuess(tokens=[1], confidences=[0.8]), Budget(depth=5, survival=0.3, calibration=HALF)
    assert not guess.is_cut(budget)
    guess.extend(AheadGuess(tokens=[1], confidences=[0.8]))
    assert guess.is_cut(budget) and not guess.is_cut(Budget(depth=5, survival=0.3))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"theta": 2}, "theta"), ({"start": 0}, "start"), ({"memory": 1}, "memory"), ({"every": 0}, "every")],
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError, match=message):
        CalibratedOptions(**options)


@pytest.mark.parametrize(
    "knots", [(), ((0.5, 1.5),), ((0.5, 0.5), (0.5, 0.6)), ((0.2, 0.5), (0.5, 0.4)), ((float("nan"), 0.1),)]
)
def test_maps_that_do_not_rise_are_refused(knots):
    with pytest.raises(ConfigError, match="calibration"):
        Calibration(tuple(Knot(*knot) for knot in knots))
