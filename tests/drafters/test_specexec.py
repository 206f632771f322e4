"""SpecExec: best-first equals brute force; a tree of a thousand nodes; more nodes never mean fewer tokens a pass."""

import heapq
from math import log

import pytest
import torch
from drafters.drafting import best_children, sequence, write
from drafters.test_draft_model import DECODER, DecoderTarget, fresh_logits

from outdraft.core.draft import host_tree
from outdraft.core.policy import Budget
from outdraft.drafters.shared.limits import MAX_NODES
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.drafters.specexec import BestFirst, SpecExecDrafter, SpecExecOptions
from outdraft.options.errors import ConfigError
from tests.helpers.table_target import TableTarget

TABLE = TableTarget(vocab_size=9, order=2, sharpness=1.2)


def feed(level, trees):
    return torch.stack(
        [TABLE.next_logits(tree.seq.tokens + tree.path(node)) for tree in trees for node in tree.frontier]
    )


def grow(seqs, *, nodes, beams, branch=9, decay=1.0, min_log_prob=-50.0, depth=30, temperature=1.0):
    shape = {"nodes": nodes, "beams": beams, "branch": branch, "decay": decay, "min_log_prob": min_log_prob}
    trees = [Tree(seq, BestFirst(**shape), temperature=temperature, max_depth=depth, max_nodes=nodes) for seq in seqs]
    drafts = grow_trees(trees, feed, sample="greedy")
    return drafts, [len(tree.expanded) for tree in trees]


def paths(draft):
    tree = host_tree(draft)
    return {tuple(tree.tokens[v] for v in tree.path(node)) for node in range(1, draft.num_nodes)}


def one_at_a_time(tokens, *, nodes, branch=9, decay=1.0, min_log_prob=-50.0, depth=30, temperature=1.0):
    """Take the best path, put its children into the queue, again and again."""
    queue, taken = [(-0.0, ())], set()
    while queue and len(taken) < nodes + 1:
        score, path = heapq.heappop(queue)
        taken.add(path)
        if len(path) < depth:
            for token, log_prob in best_children(TABLE.next_logits([*tokens, *path]), branch, temperature):
                below = -score + log_prob + log(decay)
                if below >= min_log_prob:
                    heapq.heappush(queue, (-below, (*path, token)))
    return taken - {()}


@pytest.mark.parametrize("nodes", [1, 7, 40, 200])
@pytest.mark.parametrize("beams", [1, 8, 64])
def test_best_first_equals_brute_force(nodes, beams):
    for tokens in ([1, 2], [8]):
        for settings in ({}, {"branch": 2, "decay": 0.8}, {"depth": 3}, {"min_log_prob": -3.0}, {"temperature": 0.3}):
            draft = grow([sequence(tokens)], nodes=nodes, beams=beams, **settings)[0][0]
            assert paths(draft) == one_at_a_time(tokens, nodes=nodes, **settings), settings


def test_a_greedy_request_gets_deeper_trees_a_sampled_one_those_of_its_distribution():
    made, trees = drafter(nodes=40, beams=8, temperature=0.3), {}
    for temperature in (0.0, 0.3, 1.0):
        seq = sequence([1, 2, 3], temperature=temperature)
        made.begin([seq])
        trees[temperature] = made.propose([seq], [Budget(depth=30)])[0]
    deepest = {temperature: max(host_tree(draft).depths) for temperature, draft in trees.items()}
    assert paths(trees[0.0]) == paths(trees[0.3]) and deepest[0.0] > deepest[1.0]


def test_nodes_whose_children_are_out_of_reach_are_not_fed():
    """A child scores less than its parent, by the decay at least."""
    shape = BestFirst(nodes=500, beams=8, branch=9, decay=0.8, min_log_prob=-4.0)
    tree = Tree(sequence([1, 2]), shape, max_depth=30, max_nodes=500, temperature=1.0)
    grow_trees([tree], feed, sample="greedy")
    assert len(tree.tokens) < 500, "only the least score ends it"
    assert all(tree.scores[node] + log(0.8) > -4.0 for node in tree.expanded)
    assert len(tree.expanded) < len(tree.tokens)


def test_paths_may_keep_all_of_their_worth():
    assert SpecExecOptions(decay=1.0).decay == 1.0


def test_a_batch_does_not_change_a_tree():
    texts = ([1, 2], [3], [4, 4])
    together = grow([sequence(t) for t in texts], nodes=30, beams=4)[0]
    assert [paths(d) for d in together] == [paths(grow([sequence(t)], nodes=30, beams=4)[0][0]) for t in texts]


def test_a_thousand_nodes_take_few_passes():
    rounds = 0

    def counted(level, trees):
        nonlocal rounds
        rounds += 1
        return feed(level, trees)

    shape = BestFirst(nodes=1024, beams=64, branch=9, min_log_prob=-50.0)
    tree = Tree(sequence([1, 2]), shape, max_depth=64, max_nodes=1024)
    draft = grow_trees([tree], counted, sample="greedy")[0]
    assert draft.num_nodes == 1025
    assert rounds <= 24 and len(tree.expanded) < 2 * 1024


def test_no_more_nodes_are_fed_than_the_draft_model_keeps_rows():
    """Wide rounds over sharp distributions feed many nodes that better ones drive out again."""
    sharp = TableTarget(vocab_size=23, order=2, sharpness=4.0)

    def feed(level, trees):
        return torch.stack(
            [sharp.next_logits(tree.seq.tokens + tree.path(node)) for tree in trees for node in tree.frontier]
        )

    shape = BestFirst(nodes=MAX_NODES, beams=1024, branch=16, min_log_prob=-50.0)
    tree = Tree(sequence([1, 2]), shape, max_depth=200, max_nodes=MAX_NODES)
    assert grow_trees([tree], feed, sample="greedy")[0].num_nodes == 1 + MAX_NODES
    assert len(tree.expanded) == 1 + MAX_NODES


def drafter(**options):
    model = DraftModel(DECODER)
    model._cache.rows.poison = True
    return SpecExecDrafter(SpecExecOptions(**options), model)


def test_more_nodes_never_mean_fewer_tokens_a_pass():
    taus = []
    for nodes in (1, 8, 48):
        seqs = [sequence([1, 2, i], max_tokens=25) for i in range(3)]
        taus.append(write(seqs, DecoderTarget(DECODER, 0.5), drafter(nodes=nodes, beams=16), k=12).tokens_per_pass)
    assert taus == sorted(taus) and taus[-1] > taus[0] + 1


def test_modelled_speed_up_when_a_pass_costs_fifty_draft_steps():
    """Weights that are loaded anew for each pass: a tree of 64 nodes against plain decoding, in draft steps."""
    made, passes = drafter(nodes=64, beams=16), []
    network = made.model._network
    run_rows = network.logits
    network.logits = lambda *rows: passes.append(1) or run_rows(*rows)
    seqs = [sequence([1, 2, 3], max_tokens=60)]
    run = write(seqs, DecoderTarget(DECODER, 0.1), made, k=16)
    assert 60 * 50 / (run.passes * 50 + len(passes)) > 5


@pytest.mark.parametrize(
    "bad",
    [
        {"nodes": 0},
        {"nodes": 5000},
        {"beams": 0},
        {"decay": 0.0},
        {"decay": 1.1},
        {"min_log_prob": 1.0},
        {"temperature": 0.0},
    ],
)
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        SpecExecOptions(**bad)


def test_budgets():
    made, seq = drafter(nodes=20, beams=4), sequence([1, 2, 3])
    made.begin([seq])
    for depth, nodes in ((0, None), (3, None), (3, 0), (4, 2), (1, 9)):
        draft = made.propose([seq], [Budget(depth=depth, nodes=nodes)])[0]
        assert max(host_tree(draft).depths) <= depth
        assert nodes is None or draft.num_nodes - 1 <= nodes


def test_nodes_of_mixed_depths_are_scored_by_their_own_paths():
    """Against fresh forwards of every path, one at a time."""
    made, seq = drafter(nodes=25, beams=5, branch=4, temperature=1.0), sequence([1, 2, 3])
    made.begin([seq])
    for _ in range(3):
        draft = made.propose([seq], [Budget(depth=6)])[0]
        queue, taken = [(-0.0, ())], []
        while len(taken) < 26:
            score, path = heapq.heappop(queue)
            taken.append(path)
            if len(path) < 6:
                logs = torch.log_softmax(fresh_logits([*seq.tokens, *path]), -1)
                for token in logs.topk(4).indices.tolist():
                    heapq.heappush(queue, (score - float(logs[token]) - log(0.95), (*path, token)))
        assert paths(draft) == set(taken[1:])
        seq.tokens += [*max(taken, key=len)[:2], 5]
