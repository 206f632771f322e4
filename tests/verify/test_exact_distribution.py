"""Every rule, every shape it judges, every hard pair of distributions: the enumerated distribution of the output is the
target's."""

import pytest
import torch
from verify.distributions import CHAINS, PAIRS, RULES, TREES, judged_by, rule
from verify.measuring import CONTEXT, deviation

from outdraft.testing.planted import accept_probable
from outdraft.verify.shared.per_draft import PerDraft
from tests.helpers import planted
from tests.helpers.enumerate_distribution import (
    Chance,
    exact_distribution,
    outcomes,
    rounds,
    target_distribution,
    total_variation,
)
from tests.helpers.tables import drafts_from, random_table

CASES = [(name, shape) for name in RULES for shape in judged_by(name)]


@pytest.mark.parametrize("sampled", [True, False], ids=["sampled", "deterministic"])
@pytest.mark.parametrize(("name", "shape"), CASES, ids=lambda value: str(value))
def test_output_has_the_targets_distribution(name, shape, sampled):
    verifier, parents = rule(name), judged_by(name)[shape]
    quick = len(parents) <= 4 or not sampled  # the others have ten thousands of outcomes a pair
    for which in PAIRS if quick else ("q has zeros", "both have zeros", "drafter out of its depth"):
        assert deviation(verifier, PAIRS[which], parents, sampled=sampled) < 1e-9, which


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "coupled", "multi_draft", "sequential", "traversal"])
@pytest.mark.parametrize("which", PAIRS)
def test_output_of_large_sampled_trees_has_the_targets_distribution(name, which):
    for shape in ("two levels", "out of order"):
        assert deviation(rule(name), PAIRS[which], TREES[shape], sampled=True) < 1e-9, shape


@pytest.mark.parametrize("name", ["multi_draft", "traversal", "auto"])
@pytest.mark.parametrize("shape", TREES)
def test_sampled_trees_over_three_tokens(name, shape):
    for seed in range(3):
        pair = random_table(3, 2, seed), random_table(3, 2, seed + 100, spread=1 + seed)
        assert deviation(rule(name), pair, TREES[shape], sampled=True) < 1e-9


@pytest.mark.parametrize("shape", ["three", "two levels"])
def test_coupled_sequences_under_auto(shape):
    assert deviation(rule("auto"), PAIRS["random"], (CHAINS | TREES)[shape], coupled=True) < 1e-9


@pytest.mark.parametrize("name", ["greedy", "auto"])
@pytest.mark.parametrize("parents", [*CHAINS.values(), *TREES.values()])
@pytest.mark.parametrize("sampled", [True, False])
def test_greedy_emits_the_best_tokens(name, parents, sampled):
    target, drafter = random_table(4, 2, 9, top_k=1), random_table(4, 2, 3)
    for _, outcome in rounds(
        rule(name), target, drafts_from(drafter, parents, sampled=sampled), CONTEXT, temperature=0
    ):
        text = list(CONTEXT)
        for token in outcome.emitted:
            assert token == int(target(text).argmax())
            text.append(token)


@pytest.mark.parametrize("judge", [accept_probable, planted.accept_dominated, planted.forget_residual])
@pytest.mark.parametrize("sampled", [True, False])
def test_lossy_rules_are_caught(judge, sampled):
    found = deviation(PerDraft(judge, lossless=False), PAIRS["similar"], CHAINS["three"], sampled=sampled)
    honest_by_luck = judge is planted.accept_dominated and not sampled  # p >= 1 never holds: nothing is accepted
    assert (found < 1e-9) if honest_by_luck else (found > 0.01)


@pytest.mark.parametrize("name", ["rejection", "block", "multi_draft", "traversal", "auto"])
def test_argmax_guesses_judged_by_a_soft_q_are_caught(name):
    assert deviation(rule(name), PAIRS["random"], CHAINS["three"], sampled=False, keep_q=True) > 0.01


@pytest.mark.parametrize("name", ["coupled", "sequential"])
@pytest.mark.parametrize("shape", ["three", "two levels"])
def test_rules_that_do_not_read_q_forgive_a_wrong_one(name, shape):
    assert deviation(rule(name), PAIRS["random"], (CHAINS | TREES)[shape], sampled=False, keep_q=True) < 1e-9


def test_siblings_judged_out_of_drawing_order_are_caught():
    """The order is part of the distribution: reversing it under a rule that reads q must show."""
    target, drafter = PAIRS["random"]

    def reversed_siblings(tokens, coins):
        draft = drafts_from(drafter, (-1, 0, 0))(tokens, coins)
        draft.tokens[1:] = draft.tokens[1:].flip(0)
        return draft

    for name in ("multi_draft", "traversal"):
        distribution = exact_distribution(rule(name), target, reversed_siblings, CONTEXT, 2)
        assert total_variation(distribution, target_distribution(target, CONTEXT, 2)) > 1e-3


def test_outcomes_walks_every_branch_once():
    def run(chance: Chance) -> str:
        first = chance.choose([0.25, 0.0, 0.75])
        return f"{first}" if first == 0 else f"{first}{chance.choose([0.5, 0.5])}"

    assert [*outcomes(run)] == [(0.25, "0"), (0.375, "20"), (0.375, "21")]


def test_exact_distribution_is_a_distribution():
    target, drafter = PAIRS["random"]
    distribution = exact_distribution(rule("traversal"), target, drafts_from(drafter, TREES["wide"]), CONTEXT, 2)
    assert distribution.shape == (4, 4)
    assert torch.isclose(distribution.sum(), torch.tensor(1.0, dtype=torch.float64))
