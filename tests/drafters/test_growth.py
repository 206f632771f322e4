"""Tree growth: the best nodes by path probability, children without replacement, budgets."""

import math

import pytest
import torch
from drafters.drafting import sequence

from outdraft.core.draft import host_tree
from outdraft.core.errors import NumericsError
from outdraft.core.policy import Budget
from outdraft.drafters.shared.growth import Tree, grow_trees
from outdraft.testing.table_target import TableTarget

TABLE = TableTarget(vocab_size=9, order=2, sharpness=1.2)


def feed(level, trees):
    assert all(tree.depths[node] == level for tree in trees for node in tree.frontier)
    return torch.stack(
        [TABLE.next_logits(tree.seq.tokens + tree.path(node)) for tree in trees for node in tree.frontier]
    )


def grow(seqs, *, depth=3, nodes=10, width=3, beam=3, sample="match", threshold=0.0):
    trees = [Tree(seq, depth, nodes) for seq in seqs]
    return grow_trees(trees, feed, sample=sample, width=width, beam=beam, confidence_threshold=threshold)


def paths(draft):
    tree = host_tree(draft)
    return {tuple(tree.tokens[v] for v in tree.path(node)) for node in range(1, draft.num_nodes)}


def brute_force(tokens, depth, nodes, width, beam):
    """Every child of every expanded node with its path probability; the best `nodes` of them."""
    level, found = {(): 0.0}, {}
    for _ in range(depth):
        best = sorted(level, key=lambda path: -level[path])[:beam]
        children = {}
        for path in best:
            logs = torch.log_softmax(TABLE.next_logits([*tokens, *path]), -1)
            for token in logs.topk(width).indices.tolist():
                children[(*path, token)] = level[path] + float(logs[token])
        found |= children
        level = children
    return set(sorted(found, key=lambda path: -found[path])[:nodes])


@pytest.mark.parametrize("nodes", [1, 4, 10, 100])
@pytest.mark.parametrize("width, beam", [(3, 3), (2, 5), (4, 1)])
def test_tree_is_the_best_by_path_probability(nodes, width, beam):
    for tokens in ([1, 2], [3, 4], [8]):
        draft = grow([sequence(tokens)], depth=4, nodes=nodes, width=width, beam=beam)[0]
        assert draft.q is None
        assert paths(draft) == brute_force(tokens, 4, nodes, width, beam)


def test_different_sequences_have_different_trees():
    seqs = [sequence([1, 2]), sequence([5]), sequence([7, 7])]
    together = grow(seqs)
    assert [paths(d) for d in together] == [paths(grow([sequence(s.tokens)])[0]) for s in seqs]
    assert len({frozenset(paths(d)) for d in together}) == 3


def test_budgets():
    for depth, nodes in ((0, 5), (2, 0), (1, 2), (3, 5), (2, 99)):
        for params in ({}, {"temperature": 1.0}):
            draft = grow([sequence([1, 2], **params)], depth=depth, nodes=nodes)[0]
            assert draft.num_nodes - 1 <= nodes and max(host_tree(draft).depths) <= depth
            assert (draft.num_nodes > 1) == (depth > 0 and nodes > 0)


def test_children_are_drawn_without_replacement_in_order():
    n, first, second = 5000, torch.zeros(9, dtype=torch.float64), torch.zeros(9, dtype=torch.float64)
    for seed in range(n):
        draft = grow([sequence([1, 2], seed=seed, temperature=1.0)], depth=1, width=2)[0]
        a, b = draft.tokens[1:].tolist()
        assert a != b
        first[a] += 1
        second[b] += 1
    law = draft.q[0]
    chained = torch.stack([sum(law[a] * law[b] / (1 - law[a]) for a in range(9) if a != b) for b in range(9)])
    for seen, expected in ((first, law * n), (second, chained * n)):
        assert float(((seen - expected) ** 2 / expected).sum()) < 36  # 8 degrees of freedom: p < 2e-5


def test_sampled_rows_are_the_laws_of_their_nodes():
    seq = sequence([1, 2], seed=3, temperature=0.8, top_k=4)
    draft = grow([seq], depth=3, nodes=12, width=2)[0]
    tree = host_tree(draft)
    for node, children in enumerate(tree.children):
        if not children:
            continue
        path = [tree.tokens[v] for v in tree.path(node)]
        logits = TABLE.next_logits([1, 2, *path]) / 0.8
        kept = logits.topk(4).indices
        law = torch.zeros(9, dtype=torch.float64)
        law[kept] = torch.softmax(logits[kept], -1)
        assert torch.allclose(draft.q[node], law)
        assert all(draft.q[node][tree.tokens[child]] > 0 for child in children)


def test_unsure_nodes_are_kept_but_not_expanded():
    draft = grow([sequence([1, 2])], depth=3, nodes=50, threshold=0.3)[0]
    tree = host_tree(draft)
    for node in range(1, draft.num_nodes):
        path = [1, 2] + [tree.tokens[v] for v in tree.path(tree.parents[node])]
        prob = float(torch.softmax(TABLE.next_logits(path), -1)[tree.tokens[node]])
        assert prob >= 0.3 or not tree.children[node]


def test_masked_tokens_are_never_proposed():
    def masked(level, trees):
        logits = feed(level, trees)
        logits[:, 2:] = -math.inf
        return logits

    draft = grow_trees([Tree(sequence([1, 2]), 3, 50)], masked, sample="match", width=4, beam=4)[0]
    assert set(draft.tokens[1:].tolist()) <= {0, 1}


def test_nan_is_an_error():
    with pytest.raises(NumericsError):
        grow_trees(
            [Tree(sequence([1]), 2, 5)], lambda *_: torch.full((1, 7), math.nan), sample="match", width=2, beam=2
        )


@pytest.mark.parametrize("sample", ["greedy", "match"])
def test_unsure_paths_are_not_expanded(sample):
    """A floor for paths: children hang only from probable ones. Confidences are the nodes' own."""
    seq = sequence([1, 2], temperature=1.0)
    tree = Tree(seq, 4, 60)
    budgets = [Budget(depth=4, survival=0.12)]
    draft = grow_trees([tree], feed, sample=sample, width=3, beam=9, budgets=budgets)[0]
    shape = host_tree(draft)
    sure = draft.confidence.tolist()
    expanded = [node for node in range(1, draft.num_nodes) if shape.children[node]]
    for node in range(1, draft.num_nodes):
        path = math.prod(sure[v] for v in shape.path(node))
        assert (node in expanded) == (path >= 0.12 and shape.depths[node] < 4)
    assert expanded
