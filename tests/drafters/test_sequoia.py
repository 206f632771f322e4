"""Sequoia: a table model bears the DP's prediction out, rates and costs are measured, drafts have the chosen shape."""

import pytest
import torch
from drafters.drafting import door, make, sequence, write
from drafters.test_draft_model import DECODER, V, fresh_logits

from outdraft import LLM, SamplingParams
from outdraft.core.draft import host_tree
from outdraft.core.drafter import forget
from outdraft.core.policy import Budget
from outdraft.drafters.sequoia import RankRates, SequoiaDrafter, SequoiaOptions, measure_passes
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError
from outdraft.verify.auto import Auto
from outdraft.verify.shared.best_trees import BestTrees
from tests.helpers.enumerate_distribution import expected_accepted
from tests.helpers.table_target import TableTarget
from tests.helpers.tables import Table, drafts_from

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


def all_trees(num_nodes, depth):
    """Every ordered tree of so many nodes and at most so many levels below its root, as nested tuples."""
    if num_nodes == 1:
        yield ()
    for first in range(1, num_nodes) if depth else ():
        for child in all_trees(first, depth - 1):
            for rest in all_trees(num_nodes - first, depth):
                yield (child, *rest)


def size(tree):
    return 1 + sum(map(size, tree))


def height(tree):
    return max((1 + height(child) for child in tree), default=0)


def expected(tree, rates):
    """Tokens of a round: a child of rank k is the accepted one with probability rates[k]."""
    return 1 + sum(rate * expected(child, rates) for rate, child in zip(rates, tree, strict=False))


@pytest.mark.parametrize(("rates", "widest"), [((0.4, 0.3, 0.2), 3), ((0.9, 0.05), 1), ((0.55, 0.25, 0.1), 2)])
def test_the_drafted_tree_has_the_least_cost_a_token_of_all_trees(rates, widest):
    """Rows cost next to nothing here, so a chain is best only where second children are never right."""
    made, seq = drafter(acceptance=rates, nodes=6, depth=3), sequence([1, 2, 3])

    def cost(tree):
        return (made.draft_cost * height(tree) + 1 + 0.01 * (size(tree) - 1)) / expected(tree, rates)

    made.begin([seq])
    drafted = nested(host_tree(made.propose([seq], [Budget(depth=3)])[0]).children)
    known = [tree for m in range(2, 8) for tree in all_trees(m, 3) if all(len(t) <= len(rates) for t in below(tree))]
    assert cost(drafted) == pytest.approx(min(map(cost, known)))
    assert len(drafted) >= widest


def below(tree):
    yield tree
    for child in tree:
        yield from below(child)


class SecondBest(TableTarget):
    """Writes what the draft model thinks second most likely."""

    def next_logits(self, tokens):
        logits = torch.zeros(V, dtype=torch.float64)
        logits[fresh_logits(tokens).topk(2).indices[1]] = 9.0
        return logits


def test_counted_rates_change_the_tree():
    """The second child is always the right one, which the prior does not expect: the tree grows below it."""
    made = drafter(nodes=6, depth=5)
    run = write([sequence([1, 2, 3], max_tokens=200)], SecondBest(vocab_size=V), made, k=5)
    tokens = [len(event.tokens) for event in run.events if event.tokens and event.finish_reason is None]
    assert made.rates[1] > 0.9 > 0.1 > made.rates[0]
    assert sum(tokens[:30]) / 30 < 2.5 < 3.5 < sum(tokens[-10:]) / 10


def test_after_forgetting_it_counts_from_the_prior():
    made = drafter(nodes=6, depth=5)
    before, shape = made.rates, made.topology(6, 5)
    write([sequence([1, 2, 3], max_tokens=200)], SecondBest(vocab_size=V), made, k=5)
    assert made.rates != before and made.topology(6, 5) != shape
    forget(made)
    assert made.rates == before and made.topology(6, 5) == shape


def test_costs_are_measured_on_the_target(tmp_path):
    save_model(DECODER, tmp_path)
    asked = []

    class Port:
        vocab_size, dtype, device, record, exact = V, torch.float64, torch.device("cpu"), None, True

        @staticmethod
        def pass_seconds(rows):
            asked.append(rows)
            return 1.0 + rows

    made = make("sequoia", Port, model=str(tmp_path), nodes=20)
    assert asked == [1, 2, 4, 8, 16, 21]
    assert made.pass_costs == pytest.approx([1.0 + m for m in range(1, 22)]) == measure_passes(door(Port), 21)
    assert 0 < made.draft_cost < 1


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (2, [1, 2]), (16, [1, 2, 4, 8, 16]), (17, [1, 2, 4, 8, 16, 17])])
def test_every_size_is_measured_once(most, sizes):
    asked = []

    class Port:
        @staticmethod
        def pass_seconds(rows):
            asked.append(rows)
            return 2.0 * rows

    assert measure_passes(door(Port), most) == pytest.approx([2.0 * m for m in range(1, most + 1)])
    assert asked == sizes


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


def test_rounds_that_another_drafter_guessed_teach_it_nothing():
    both = {"drafters": ["ngram", {"method": "sequoia", "model": "zoo:draft", "verify_cost": [1.0, 1.05]}]}
    with LLM("zoo:target", drafter={"name": "several", **both}, policy="fixed", num_speculative_tokens=4) as llm:
        drafter = llm.engine.parts.drafter
        made = getattr(drafter, "inner", drafter).drafters[1]
        before = made.rates
        params = SamplingParams(max_tokens=40, ignore_eos=True)
        result = llm.generate("one two three one two three one two three one two", params)
        assert set(result.stats.rounds_by_method) == {"ngram"} and result.stats.num_accepted_tokens
        assert made.rates == before
