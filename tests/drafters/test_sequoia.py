"""Sequoia: a table model bears the DP's prediction out, rates and costs are measured, drafts have the chosen shape."""

import pytest
import torch
from drafters.drafting import make, sequence
from drafters.test_draft_model import DECODER, V

from outdraft.core.draft import host_tree
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Budget
from outdraft.decode.best_trees import BestTrees
from outdraft.drafters.sequoia.drafter import SequoiaDrafter, SequoiaOptions, measure_passes
from outdraft.drafters.sequoia.rates import RankRates
from outdraft.drafters.shared.draft_model import DraftModel
from outdraft.models.load import save_model
from outdraft.testing.enumerate_law import expected_accepted
from outdraft.testing.tables import Table, drafts_from
from outdraft.verify.auto import Auto

RATES = (0.55, 0.2, 0.1, 0.04)


def nested(topology, node=0):
    return tuple(nested(topology, child) for child in topology[node])


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
    assert found == pytest.approx(best.values[3, 7], rel=0.05)


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
