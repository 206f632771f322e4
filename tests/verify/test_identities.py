"""How much each rule accepts, in exact numbers: the identities and the orders that the papers prove."""

import pytest
import torch
from verify.distributions import CHAINS, PAIRS, TREES, rule

from outdraft.sampling.coins import KeyedCoins
from outdraft.sampling.draft_coins import KeyedDraftCoins
from tests.helpers.enumerate_distribution import expected_accepted
from tests.helpers.tables import Table, drafts_from, one_sequence, random_table, score

CONTEXT = [0, 1]
CHAIN = CHAINS["three"]


def accepted(name, pair, parents, **drafting) -> float:
    return expected_accepted(rule(name), pair[0], drafts_from(pair[1], parents, **drafting), CONTEXT)


def products_of_overlaps(target, drafter, text, k) -> float:
    """sum_i E[prod_{j <= i} alpha_j], alpha = sum_x min(p, q)."""
    if k == 0:
        return 0.0
    overlap = torch.minimum(target(text), drafter(text)).tolist()
    return sum(a * (1 + products_of_overlaps(target, drafter, [*text, x], k - 1)) for x, a in enumerate(overlap))


def accepted_with_replacement(p, q, count) -> float:
    """K independent children of one node, each judged against the residual of those before."""
    missed = 1.0
    for _ in range(count):
        missed *= 1 - float(torch.minimum(p, q).sum())
        p = (p - q).clamp(min=0)
        p = p / p.sum()
    return 1 - missed


@pytest.mark.parametrize("which", PAIRS)
def test_rejection_accepts_the_products_of_overlaps(which):
    target, drafter = PAIRS[which]
    assert accepted("rejection", PAIRS[which], CHAIN) == pytest.approx(
        products_of_overlaps(target, drafter, CONTEXT, 3), abs=1e-12
    )


@pytest.mark.parametrize("which", PAIRS)
def test_block_accepts_at_least_as_much_as_rejection(which):
    assert accepted("block", PAIRS[which], CHAIN) >= accepted("rejection", PAIRS[which], CHAIN) - 1e-12


def test_blocks_published_example():
    """Two tokens, p = (1/3, 2/3), q = (2/3, 1/3), two drafted: 11/9 accepted instead of 10/9."""
    p = Table(torch.tensor([[1 / 3, 2 / 3]], dtype=torch.float64), 0)
    q = Table(torch.tensor([[2 / 3, 1 / 3]], dtype=torch.float64), 0)
    propose = drafts_from(q, (-1, 0, 1))
    assert expected_accepted(rule("rejection"), p, propose, [0]) == pytest.approx(10 / 9)
    assert expected_accepted(rule("block"), p, propose, [0]) == pytest.approx(11 / 9)
    assert expected_accepted(rule("traversal"), p, propose, [0]) == pytest.approx(11 / 9)


@pytest.mark.parametrize("seed", range(5))
def test_traversal_accepts_at_least_as_much_as_multi_draft(seed):
    pair = random_table(3, 2, seed), random_table(3, 2, seed + 50, spread=1 + seed % 3)
    for parents in TREES.values():
        assert accepted("traversal", pair, parents) >= accepted("multi_draft", pair, parents) - 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_children_without_replacement_are_accepted_more_often(seed):
    target, drafter = random_table(4, 2, seed), random_table(4, 2, seed + 50)
    p, q = target(CONTEXT), drafter(CONTEXT)
    for count in (2, 3):
        without = accepted("multi_draft", (target, drafter), (-1, *[0] * count))
        assert without >= accepted_with_replacement(p, q, count) - 1e-12


@pytest.mark.parametrize("parents", TREES.values())
def test_rules_agree_on_deterministic_trees(parents):
    """One-hot q: try one by one, or draw and match, or judge from the leaves; the sum of path masses is the most."""
    expected = accepted("sequential", PAIRS["random"], parents, sampled=False)
    for name in ("coupled", "multi_draft", "traversal"):
        assert accepted(name, PAIRS["random"], parents, sampled=False) == pytest.approx(expected, abs=1e-12)


def test_equal_distributions_accept_everything():
    for name in ("rejection", "block", "multi_draft", "traversal", "auto"):
        assert accepted(name, PAIRS["identical"], CHAIN) == pytest.approx(3)


@pytest.mark.parametrize("parents", TREES.values())
def test_multi_draft_is_sequential_on_deterministic_trees_coin_for_coin(parents):
    target, drafter = PAIRS["similar"]
    for seed in range(100):
        seq = one_sequence(CONTEXT, seed=seed)
        draft = drafts_from(drafter, parents, sampled=False)(CONTEXT, KeyedDraftCoins(seed, 1, coupled=False))
        packed, p = score(target, [seq], [draft])
        (a,), (b,) = (rule(name)(packed, p, [KeyedCoins(seed, 1)]) for name in ("multi_draft", "sequential"))
        assert a == b


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize(("first", "second"), [("block", "traversal"), ("rejection", "multi_draft")])
def test_tree_rules_are_the_chain_rules_on_chains_coin_for_coin(first, second, sampled):
    target, drafter = PAIRS["random"]
    lengths = set()
    for seed in range(200):
        seq = one_sequence(CONTEXT, seed=seed)
        draft = drafts_from(drafter, CHAIN, sampled=sampled)(CONTEXT, KeyedDraftCoins(seed, 1, coupled=False))
        packed, p = score(target, [seq], [draft])
        (a,), (b,) = (rule(name)(packed, p, [KeyedCoins(seed, 1)]) for name in (first, second))
        assert a == b
        lengths.add(len(a.path))
    assert len(lengths) > 1
