"""Siblings that were drawn independently: with replacement from one distribution, or by two drafters, each from its own
row."""

import pytest
import torch
from verify import measuring
from verify.distributions import PAIRS, rule
from verify.measuring import CONTEXT

from outdraft.core.draft import Draft
from tests.helpers.enumerate_distribution import expected_accepted
from tests.helpers.tables import drafts_from, random_table

RULES = ("auto", "multi_draft", "traversal")


def independent(distributions, *, told=True):
    """A child of the root from each distribution, each with one child of its own, drawn from the same distribution."""

    def propose(tokens, coins):
        first = [coins.draw(distribution(tokens), 0, 1000 + i)[0] for i, distribution in enumerate(distributions)]
        pairs = list(zip(distributions, first, strict=True))
        second = [coins.draw(distribution([*tokens, a]), 1, i + 1)[0] for i, (distribution, a) in enumerate(pairs)]
        n, extra = len(distributions), [distribution(tokens) for distribution in distributions[1:]]
        rows = [distributions[0](tokens), *(distribution([*tokens, a]) for distribution, a in pairs)]
        rows += [torch.zeros_like(rows[0])] * n
        num_nodes = 1 + 2 * n
        drawn_from = [-1, 0, *range(num_nodes, num_nodes + n - 1), *range(1, n + 1)]
        return Draft(
            tokens=torch.tensor([tokens[-1], *first, *second]),
            parents=torch.tensor([-1, *[0] * n, *range(1, n + 1)]),
            q=torch.stack([*rows, *extra] if told else rows),
            drawn_from=torch.tensor(drawn_from) if told else None,
        )

    return propose


def deviation(name, target, propose, horizon=3, **options):
    return measuring.deviation(rule(name, **options), (target, None), (), propose=propose, horizon=horizon)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("which", ["random", "peaked", "q has zeros", "both have zeros", "disjoint", "identical"])
def test_children_with_replacement(name, which):
    target, drafter = PAIRS[which]
    assert deviation(name, target, independent([drafter, drafter])) < 1e-9


@pytest.mark.parametrize("name", RULES)
def test_children_of_two_drafters(name):
    for seed in range(3):
        target, a, b = (random_table(3, 2, seed + shift, spread=1 + shift / 40) for shift in (0, 40, 80))
        assert deviation(name, target, independent([a, b])) < 1e-9


def test_gates_judge_each_child_by_its_own_row():
    target, a, b = (random_table(4, 2, seed) for seed in (0, 9, 19))
    for gate in ({"ratio": 0.7}, {"confidence": 0.3}, {"threshold": 0.2, "top_k": 3}):
        assert deviation("gated", target, independent([a, b]), 2, **gate) < 1e-9


@pytest.mark.parametrize("name", RULES)
def test_a_second_drafter_that_does_not_observe_is_caught(name):
    target, a, b = (random_table(3, 2, seed) for seed in (0, 9, 19))
    assert deviation(name, target, independent([a, b], told=False)) > 0.001


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("which", ["random", "peaked", "both have zeros"])
def test_with_replacement_is_without_it_where_a_child_that_comes_twice_is_skipped(name, which):
    """Given that it differs from the first, a second draw from q is one from q without the first."""
    target, drafter = PAIRS[which]
    assert deviation(name, target, independent([drafter, drafter], told=False)) < 1e-9


def test_without_replacement_accepts_more():
    target, drafter = PAIRS["random"]
    alone = expected_accepted(rule("multi_draft"), target, drafts_from(drafter, (-1, 0)), CONTEXT)
    twice = expected_accepted(rule("multi_draft"), target, independent_children(drafter), CONTEXT)
    distinct = expected_accepted(rule("multi_draft"), target, drafts_from(drafter, (-1, 0, 0)), CONTEXT)
    assert alone < twice < distinct


def independent_children(distribution):
    def propose(tokens, coins):
        q = distribution(tokens)
        drawn = [coins.draw(q, 0, i)[0] for i in range(2)]
        return Draft(
            tokens=torch.tensor([tokens[-1], *drawn]),
            parents=torch.tensor([-1, 0, 0]),
            q=torch.stack([q] * 4),
            drawn_from=torch.tensor([-1, 0, 3]),
        )

    return propose
