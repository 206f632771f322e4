"""Whole texts with the production coins: the counts are the target's, and planted faults are not."""

import pytest
from verify.distributions import rule

from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import KeyedDraftCoins, draft_coins
from outdraft.testing.planted import accept_probable
from outdraft.verify.shared.per_draft import PerDraft
from tests.helpers import planted
from tests.helpers.sample_distribution import sample_distribution
from tests.helpers.tables import blend, drafts_from, random_table

CHAIN, TREE = (-1, 0, 1, 2), (-1, 0, 0, 1, 1, 2)
TARGET, DRAFTER = random_table(4, 1, 1), random_table(4, 1, 2)  # unlike each other: rejections are frequent
HONEST = [
    ("coupled", TREE, True),
    ("rejection", CHAIN, True),
    ("block", CHAIN, True),
    ("sequential", TREE, False),
    ("multi_draft", TREE, True),
    ("traversal", TREE, True),
]
ENOUGH = 2000  # tokens in which a planted rule shows
FAINT = 4000  # tokens in which noise shows that drafter and rule share: the coins are the same for every rule
PLANTED = [accept_probable, planted.accept_dominated, planted.forget_residual]


@pytest.mark.parametrize(("name", "parents", "sampled"), HONEST)
def test_texts_have_the_targets_distribution(name, parents, sampled):
    num_tokens = FAINT if name == "rejection" else ENOUGH
    result = sample_distribution(
        rule(name), TARGET, drafts_from(DRAFTER, parents, sampled=sampled), num_tokens=num_tokens
    )
    assert result.passes, result
    assert result.num_rounds <= result.num_tokens == num_tokens


def in_detail(judge, parents, sampled, share):
    """Of eight tokens; the drafter is the target (1), another table (0) or between."""
    target = random_table(8, 2, 3)
    drafter = blend(target, random_table(8, 2, 4), share)
    return sample_distribution(judge, target, drafts_from(drafter, parents, sampled=sampled), num_tokens=12_000, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parents", "sampled"), HONEST)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_texts_have_the_targets_distribution_in_detail(name, parents, sampled, share):
    result = in_detail(rule(name), parents, sampled, share)
    assert result.passes, result


@pytest.mark.slow
@pytest.mark.parametrize("judge", PLANTED)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_lossy_rules_fail_in_detail(judge, share):
    result = in_detail(PerDraft(judge, lossless=False), CHAIN, True, share)
    assert not result.passes, result


@pytest.mark.parametrize("judge", PLANTED)
def test_lossy_rules_fail(judge):
    result = sample_distribution(
        PerDraft(judge, lossless=False), TARGET, drafts_from(DRAFTER, CHAIN), num_tokens=ENOUGH
    )
    assert not result.passes, result


def test_argmax_guesses_judged_by_a_soft_q_fail():
    result = sample_distribution(
        rule("block"),
        TARGET,
        drafts_from(DRAFTER, CHAIN),
        num_tokens=ENOUGH,
        guesses=lambda seq: planted.ArgmaxDraftCoins(draft_coins(seq)),
    )
    assert not result.passes, result


def test_a_drafter_on_the_verifiers_noise_fails_unless_the_rule_is_coupled():
    def shared(seq):
        return KeyedDraftCoins(seq.seed, len(seq.tokens) - 1, coupled=True)

    assert not sample_distribution(
        rule("rejection"), TARGET, drafts_from(DRAFTER, CHAIN), num_tokens=FAINT, guesses=shared
    ).passes
    assert sample_distribution(
        rule("coupled"), TARGET, drafts_from(DRAFTER, CHAIN), num_tokens=ENOUGH, guesses=shared
    ).passes


def test_one_coin_for_a_whole_round_fails():
    result = sample_distribution(
        rule("rejection"),
        TARGET,
        drafts_from(DRAFTER, CHAIN),
        num_tokens=ENOUGH,
        coins=lambda seq: planted.StuckCoins(verifier_coins(seq)),
    )
    assert not result.passes, result


def test_coupled_texts_do_not_depend_on_the_draft():
    """Not only the distribution: the text itself, with nothing drafted, a chain, a tree, sampled or not."""
    texts = set()
    for parents, sampled in [((-1,), True), (CHAIN, True), (TREE, True), (TREE, False)]:
        emitted: list[int] = []

        class Recorder:
            lossless = True
            couples = rule("coupled").couples

            def __call__(self, packed, p, coins, emitted=emitted):
                (verdict,) = rule("coupled")(packed, p, coins)
                emitted += [*packed.drafts[0].tokens[list(verdict.path)].tolist(), verdict.token]
                return [verdict]

        sample_distribution(
            Recorder(), TARGET, drafts_from(DRAFTER, parents, sampled=sampled), num_tokens=100, length=100
        )
        texts.add(tuple(emitted[:100]))
    assert len(texts) == 1
