"""Policies that read the drafter's confidence: the ROC threshold, the self-tuning one, branch pacing."""

import random

import pytest
from control.world import sequence

from outdraft.control.branch_pacing import BranchPacingOptions, BranchPacingPolicy
from outdraft.control.dynamic_tree import DynamicTreeOptions, DynamicTreePolicy
from outdraft.control.roc import RocOptions, RocPolicy, best_threshold
from outdraft.control.self_tuning import SelfTuningOptions, SelfTuningPolicy
from outdraft.control.threshold import ThresholdOptions
from outdraft.control.threshold import build as build_threshold
from outdraft.core.events import StepEvent
from outdraft.options.errors import ConfigError


def guess(accepted, depth, sures=()):
    return StepEvent(
        seq_id=0,
        tokens=(1,) * (accepted + 1),
        draft_depth=depth,
        num_draft_tokens=depth,
        num_accepted=accepted,
        rejected=accepted < depth,
        confidences=tuple(sures),
    )


def brute_force(pairs, weight):
    """The confidence with the least fpr + weight * fnr, all counted anew for each."""
    accepted = [sure for sure, kept in pairs if kept]
    rejected = [sure for sure, kept in pairs if not kept]

    def cost(h):
        return sum(s >= h for s in rejected) / len(rejected) + weight * sum(s < h for s in accepted) / len(accepted)

    return min(cost(sure) for sure, _ in pairs), cost


def test_the_roc_threshold_equals_brute_force():
    dice = random.Random(0)
    for _ in range(200):
        pairs = [
            (round(dice.random(), 1 + dice.randrange(3)), dice.random() < 0.6) for _ in range(dice.randrange(8, 60))
        ]
        if len({kept for _, kept in pairs}) < 2:
            continue
        least, cost = brute_force(pairs, 3.0)
        assert cost(best_threshold(pairs, 3.0, 0.4)) == pytest.approx(least)
    assert best_threshold([(0.3, True)] * 9, 3.0, 0.4) == 0.4  # one kind only: nothing to weigh


def test_roc_collects_pairs_until_the_first_rejection_and_forgets_old_ones():
    policy = RocPolicy(RocOptions(window=8, every=1))
    assert policy.plan([sequence()])[0].confidence == 0.4
    policy.update([guess(2, 5, [0.9, 0.8, 0.2])])
    assert list(policy.pairs) == [(0.9, True), (0.8, True), (0.2, False)]
    policy.update([guess(2, 5, [0.7, 0.6, 0.5])])
    assert policy.plan([sequence()])[0].confidence == 0.6  # all accepted ones are at or above, no rejected one
    for _ in range(4):
        policy.update([guess(1, 4, [0.3, 0.25])])
    assert len(policy.pairs) == 8 and policy.threshold == 0.3
    policy.threshold = 0.0
    assert policy.plan([sequence()])[0].confidence > 0  # confidences go on coming


def test_self_tuning_holds_the_share_near_its_target():
    """A drafter whose tokens are right with their confidence. The share that is held is that of the last few rounds,
    so it lies above the wanted one half of the time."""
    dice = random.Random(1)
    options = SelfTuningOptions(threshold=0.3, step=0.05, keep_threshold=0.5)
    policy, seq, shares = SelfTuningPolicy(options), sequence(), []
    for _ in range(3000):
        (budget,) = policy.plan([seq])
        accepted, depth, right = 0, 0, True
        while depth < budget.depth:
            sure = dice.random() ** 0.06
            depth += 1
            right = right and dice.random() < sure
            accepted += right
            if sure < budget.confidence:
                break
        policy.update([guess(accepted, depth)])
        shares.append((accepted, depth))
    late = shares[1000:]
    smooth, above = 0.0, 0
    for accepted, depth in late:
        smooth = (smooth + accepted / depth) / 2
        above += smooth >= 0.9
    assert 0.4 < above / len(late) < 0.6
    assert sum(a / d for a, d in shares[:20]) / 20 < sum(a / d for a, d in late) / len(late)


def test_self_tuning_by_hand():
    policy, seq = SelfTuningPolicy(SelfTuningOptions()), sequence()
    assert policy.plan([seq])[0].confidence == 0.8
    policy.update([guess(4, 4)])  # r = 0.5 < 0.9: up by (1 - 0.9) * 0.01
    assert policy.plan([seq])[0].confidence == pytest.approx(0.801)
    for _ in range(4):
        policy.update([guess(8, 8)])  # r rises above 0.9; as deep as allowed, so h stays
    before = policy.plan([seq])[0].confidence
    policy.update([guess(8, 8)])
    assert policy.plan([seq])[0].confidence == before
    policy.update([guess(3, 3)])
    assert policy.plan([seq])[0].confidence == pytest.approx(before - 0.001)
    policy.update([guess(0, 0)])  # nothing drafted: nothing learned
    assert policy.plan([seq])[0].confidence == pytest.approx(before - 0.001)


@pytest.mark.parametrize("limit", [{"asks": 3}, {"max_tokens": 4}])
def test_self_tuning_leaves_alone_what_is_as_deep_as_the_request_allows(limit):
    """Three tokens, all of them right, are no reason to grow bolder where three are the most."""
    policy, seq = SelfTuningPolicy(SelfTuningOptions(keep_share=0)), sequence(**limit)
    for accepted, depth, threshold in ((3, 3, 0.8), (3, 3, 0.8), (2, 2, 0.799)):
        assert policy.plan([seq])[0].depth == 3
        policy.update([guess(accepted, depth)])
        assert policy.plan([seq])[0].confidence == pytest.approx(threshold)
    policy.end([seq])
    assert not policy._states


def test_branch_pacing_goes_on_longer_after_success():
    policy, seq = BranchPacingPolicy(BranchPacingOptions()), sequence()
    assert policy.plan([seq])[0].survival == 0.5
    policy.update([guess(3, 3)])
    assert policy.plan([seq])[0].survival == pytest.approx(0.45)
    policy.update([guess(1, 3)])
    policy.update([guess(0, 3)])
    assert policy.plan([seq])[0].survival == pytest.approx(0.45 * 1.21)
    for _ in range(99):
        policy.update([guess(0, 3)])
    assert policy.plan([seq])[0].survival == 0.95
    for _ in range(99):
        policy.update([guess(3, 3)])
    assert policy.plan([seq])[0].survival == 0.02


def test_fixed_limits():
    seqs = [sequence(i) for i in range(8)]
    (budget,) = build_threshold(ThresholdOptions(threshold=0.6), ()).plan(seqs[:1])
    assert (budget.depth, budget.confidence, budget.nodes) == (20, 0.6, None)
    tree = DynamicTreePolicy(DynamicTreeOptions())
    assert [(b.depth, b.nodes) for b in tree.plan(seqs[:1])] == [(6, 59)]
    assert {(b.depth, b.nodes) for b in tree.plan(seqs)} == {(6, 30)}


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        (ThresholdOptions, {"threshold": 1.5}),
        (RocOptions, {"window": 2}),
        (SelfTuningOptions, {"wanted": -1}),
        (BranchPacingOptions, {"theta": 1}),
        (DynamicTreeOptions, {"nodes": 0}),
    ],
)
def test_bad_options(options, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        options(**bad)
