"""Sequoia: the DP equals brute force, the tree that it names has that value, and a table model bears it out."""

import pytest
import torch
from drafters.drafting import make, sequence
from drafters.test_draft_model import DECODER, V

from outdraft.core.draft import host_tree
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Budget
from outdraft.drafters.sequoia.drafter import SequoiaDrafter, SequoiaOptions, measure_passes
from outdraft.drafters.sequoia.rates import RankRates
from outdraft.drafters.sequoia.topology import BestTrees, choose_size
from outdraft.drafters.shared.draft_model import DraftModel
from outdraft.models.load import save_model
from outdraft.testing.enumerate_law import expected_accepted
from outdraft.testing.tables import Table, drafts_from
from outdraft.verify.auto import Auto

RATES = (0.55, 0.2, 0.1, 0.04)


def all_trees(m, d, width):
    """Every ordered tree of m nodes, as nested tuples of children."""
    if m == 1:
        yield ()
    elif d > 0:
        yield from forests(m - 1, d - 1, width)


def forests(m, d, width):
    if m == 0:
        yield ()
    elif width > 0:
        for size in range(1, m + 1):
            for first in all_trees(size, d, 4):
                for rest in forests(m - size, d, width - 1):
                    yield (first, *rest)


def value(tree, rates=RATES):
    return 1 + sum(rate * value(child, rates) for rate, child in zip(rates, tree, strict=False))


def nested(topology, node=0):
    return tuple(nested(topology, child) for child in topology[node])


@pytest.mark.parametrize("rates", [RATES, (0.9, 0.05), (0.3, 0.3, 0.3), (0.1, 0.4, 0.2)])
def test_dp_equals_brute_force(rates):
    best = BestTrees(rates, max_nodes=8, max_depth=4)
    for m in range(1, 9):
        for d in range(1, 5):
            wanted = max(
                (value(tree, rates) for tree in all_trees(m, d, len(rates)) if fits(tree, len(rates))), default=None
            )
            if wanted is None:
                assert best.expected(m, d) < 0
                continue
            assert best.expected(m, d) == pytest.approx(wanted)
            topology = best.tree(m, d)
            assert len(topology) == m and value(nested(topology), rates) == pytest.approx(wanted)


def fits(tree, width):
    return len(tree) <= width and all(fits(child, width) for child in tree)


def test_parents_come_first_and_no_node_is_lost():
    topology = BestTrees(RATES, max_nodes=20, max_depth=6).tree(20, 6)
    assert sorted(child for children in topology for child in children) == list(range(1, 20))
    assert all(child > node for node, children in enumerate(topology) for child in children)


def test_size_has_the_least_cost_a_token():
    best = BestTrees(RATES, max_nodes=17, max_depth=5)
    for draft_cost in (0.01, 0.1, 0.5):
        for slope in (0.0, 0.05, 0.5):
            costs = [1 + slope * m for m in range(17)]
            ratios = {
                (m, d): (d * draft_cost + costs[m - 1]) / best.expected(m, d)
                for d in range(1, 6) for m in range(2, 18) if best.expected(m, d) > 0
            }  # fmt: skip
            assert ratios[choose_size(best, 5, draft_cost, costs)] == pytest.approx(min(ratios.values()))


def test_dearer_rows_make_smaller_trees():
    sizes = [
        choose_size(BestTrees(RATES, max_nodes=33, max_depth=8), 8, 0.05, [1 + slope * m for m in range(33)])[0]
        for slope in (0.0, 0.02, 0.1, 0.5)
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 3 * sizes[-1]


def test_counted_tokens_are_the_dps_prediction():
    """A table that ignores the past: rates by rank are the same at every node, as the DP assumes."""
    target = Table(torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64), 0)
    drafter = Table(torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64), 0)
    ranks = (-1, 0, 0, 0)
    rates = [
        expected_accepted(Auto(), target, drafts_from(drafter, ranks[: k + 2], sampled=False), [0])
        - (expected_accepted(Auto(), target, drafts_from(drafter, ranks[: k + 1], sampled=False), [0]) if k else 0)
        for k in range(3)
    ]
    assert rates == pytest.approx([0.5, 0.3, 0.15])
    best = BestTrees(rates, max_nodes=7, max_depth=3)
    topology = best.tree(7, 3)
    parents = [-1] * 7
    for node, children in enumerate(topology):
        for child in children:
            parents[child] = node
    found = 1 + expected_accepted(Auto(), target, drafts_from(drafter, parents, sampled=False), [0])
    assert found == pytest.approx(best.expected(7, 3), rel=0.05)


def test_rates_are_counted_by_rank():
    class Tree:
        children = ([1, 2, 3], [4, 5], [], [], [], [])

    rates = RankRates((0.5, 0.2, 0.1))
    for path in ((1, 5), (1, 4), (3,), ()):
        for _ in range(400):
            rates.learn(Tree, path)
    made = RankRates((0.5, 0.2, 0.1))
    for _ in range(500):
        for path in ((1, 5), (1, 4), (3,), ()):
            made.learn(Tree, path)
    # Examined nodes: root 4 times, node 1 twice; rank 1 accepted 2 + 1 times, rank 2 once, rank 3 once of 4.
    assert made.rates == pytest.approx([3 / 6, 1 / 6, 1 / 4], abs=0.02)
    assert rates.rates[0] < 0.05  # the last 400 rounds accepted nothing


def drafter(**options):
    return SequoiaDrafter(SequoiaOptions(**options), DraftModel(DECODER), options.get("verify_cost", (1.0, 1.01)), 0.05)


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}])
def test_drafts_have_the_chosen_shape(params):
    made = drafter(acceptance=RATES, nodes=12, depth=4)
    seq = sequence([1, 2, 3], **params)
    made.begin([seq])
    for nodes, depth in ((None, 4), (5, 4), (12, 2), (1, 1), (0, 3)):
        draft = made.propose([seq], [Budget(depth=depth, nodes=nodes)])[0]
        limit = 12 if nodes is None else nodes
        if limit == 0:
            assert draft.num_nodes == 1
            continue
        wanted = nested(made.topology(limit, depth))
        tree = host_tree(draft)
        assert nested(tree.children) == wanted and (draft.q is None) == (not params)


def test_costs_are_measured_on_the_target(tmp_path):
    save_model(DECODER, tmp_path)
    asked = []

    class Port:
        vocab_size, dtype, device, record = V, torch.float64, torch.device("cpu"), None

        @staticmethod
        def pass_seconds(rows):
            asked.append(rows)
            return 1.0 + rows

    made = make("sequoia", Port, model=str(tmp_path), nodes=20)
    assert asked == [1, 2, 4, 8, 16, 21]
    assert made.pass_costs == pytest.approx([1.0 + m for m in range(1, 22)]) == measure_passes(Port, 21)
    assert 0 < made.draft_cost < 1


@pytest.mark.parametrize(
    "bad",
    [
        {"nodes": 0},
        {"depth": 0},
        {"acceptance": (0.9, 0.3)},
        {"verify_cost": (1.0,)},
        {"draft_cost": -1.0},
        {"sample": "x"},
    ],
)
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        SequoiaOptions(**bad)
