"""Tree growth: the best nodes by path probability, children without replacement, budgets."""

import math

import pytest
import torch
from drafters.drafting import best_children, sequence

from outdraft.core.draft import host_tree
from outdraft.core.policy import Budget
from outdraft.drafters.shared.blocks.grow import BlockOptions, grow_marginals
from outdraft.drafters.shared.limits import Cutoff
from outdraft.drafters.shared.trees.growth import Alike, grow_trees
from outdraft.drafters.shared.trees.shapes import Beam, BestPaths, Levels, Template, num_nodes
from outdraft.drafters.shared.trees.tree import GREEDY, Tree
from outdraft.options.errors import NumericsError
from tests.helpers.table_target import TableTarget

TABLE = TableTarget(vocab_size=9, order=2, sharpness=1.2)


def feed(level, trees):
    assert all(tree.depths[node] == level for tree in trees for node in tree.frontier)
    return torch.stack(
        [TABLE.next_logits(tree.seq.tokens + tree.path(node)) for tree in trees for node in tree.frontier]
    )


def grow(seqs, *, depth=3, nodes=10, width=3, beam=3, sample="match", threshold=0.0):
    trees = [tree(seq, Beam(width, beam), depth, nodes, threshold) for seq in seqs]
    return grow_trees(trees, feed, sample=sample)


def tree(seq, shape, depth, nodes, threshold=0.0):
    return Tree(seq, shape, max_depth=depth, max_nodes=nodes, cutoff=Cutoff(threshold))


def paths(draft):
    tree = host_tree(draft)
    return {tuple(tree.tokens[v] for v in tree.path(node)) for node in range(1, draft.num_nodes)}


def brute_force(tokens, depth, nodes, width, beam, temperature=GREEDY):
    """Every child of every expanded node with its path probability; the best `nodes` of them."""
    level, found = {(): 0.0}, {}
    for _ in range(depth):
        best = sorted(level, key=lambda path: -level[path])[:beam]
        children = {}
        for path in best:
            for token, log_prob in best_children(TABLE.next_logits([*tokens, *path]), width, temperature):
                children[(*path, token)] = level[path] + log_prob
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
        warm = grow([sequence(tokens, temperature=0.9)], sample="greedy", depth=4, nodes=nodes, width=width, beam=beam)[
            0
        ]
        assert paths(warm) == brute_force(tokens, 4, nodes, width, beam, temperature=0.9)  # a request's own


def test_the_pending_token_is_certain():
    """Confidences are given for every node, the pending token's included: it is text."""
    for nodes in (4, 100):  # cut to its best nodes, and whole
        draft = grow([sequence([1, 2])], nodes=nodes, threshold=0.01)[0]
        assert draft.confidence[0] == 1.0 and len(draft.confidence) == draft.num_nodes
        assert all(0 < sure < 1 for sure in draft.confidence[1:].tolist())


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
    distribution = draft.q[0]
    chained = torch.stack(
        [sum(distribution[a] * distribution[b] / (1 - distribution[a]) for a in range(9) if a != b) for b in range(9)]
    )
    for seen, expected in ((first, distribution * n), (second, chained * n)):
        assert float(((seen - expected) ** 2 / expected).sum()) < 36  # 8 degrees of freedom: p < 2e-5


def test_sampled_rows_are_the_distributions_of_their_nodes():
    seq = sequence([1, 2], seed=3, temperature=0.8, top_k=4)
    draft = grow([seq], depth=3, nodes=12, width=2)[0]
    tree = host_tree(draft)
    for node, children in enumerate(tree.children):
        if not children:
            continue
        path = [tree.tokens[v] for v in tree.path(node)]
        logits = TABLE.next_logits([1, 2, *path]) / 0.8
        kept = logits.topk(4).indices
        distribution = torch.zeros(9, dtype=torch.float64)
        distribution[kept] = torch.softmax(logits[kept], -1)
        assert torch.allclose(draft.q[node], distribution)
        assert all(draft.q[node][tree.tokens[child]] > 0 for child in children)


def test_unsure_nodes_are_kept_but_not_expanded():
    draft = grow([sequence([1, 2])], depth=3, nodes=50, threshold=0.3)[0]
    tree = host_tree(draft)
    for node in range(1, draft.num_nodes):
        path = [1, 2] + [tree.tokens[v] for v in tree.path(tree.parents[node])]
        prob = float(torch.softmax(TABLE.next_logits(path), -1)[tree.tokens[node]])
        assert prob >= 0.3 or not tree.children[node]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}, {"temperature": 0.7}])
def test_unsure_paths_are_kept_but_not_expanded(width, params):
    """A path's cutoff is in the guesser's probabilities, at whatever temperature paths are ranked."""
    ended = 0
    for seed in range(8):
        seq = sequence([1, seed], seed=seed, **params)
        whole = Tree(seq, Beam(width, 9), max_depth=4, max_nodes=99, cutoff=Cutoff(path=0.2))
        draft = grow_trees([whole], feed, sample="match")[0]
        tree = host_tree(draft)
        for node in range(1, draft.num_nodes):
            line = [0, *tree.path(node)]
            probs = [TABLE.next_logits([1, seed, *(tree.tokens[v] for v in line[1:i])]) for i in range(1, len(line))]
            sure = math.prod(
                float(torch.softmax(row / params.get("temperature", 1.0), -1)[tree.tokens[v]])
                for row, v in zip(probs, line[1:], strict=True)
            )
            if tree.depths[node] < 4:
                assert (sure >= 0.2) == bool(tree.children[node])
                ended += sure < 0.2
    assert ended


def test_an_only_child_is_no_surer_than_it_is():
    """A node scores among the best two tokens, for two are the most children here; and so the tree is cut, alone or in
    a batch."""
    shape_paths, tokens = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)], [3, 4]
    found = {(): 0.0}
    for path in sorted(shape_paths, key=len):
        (parent,) = (above for above in found if ranks_of(above, tokens) == path[:-1])
        token, score = best_children(TABLE.next_logits([*tokens, *parent]), 2)[path[-1]]
        found[*parent, token] = found[parent] + score
    del found[()]
    for nodes in range(1, len(shape_paths)):
        wanted = set(sorted(found, key=lambda path: -found[path])[:nodes])
        alone, beside = (tree(sequence(tokens), Template(shape_paths), 9, nodes) for _ in range(2))
        wide = tree(sequence([8]), Levels((5, 1)), 9, 99)
        assert paths(grow_trees([alone], feed, sample="match")[0]) == wanted
        assert paths(grow_trees([wide, beside], feed, sample="match")[1]) == wanted


def ranks_of(path, tokens):
    """Which child each token of the path is of the one before it."""
    logits = [TABLE.next_logits([*tokens, *path[:i]]) for i in range(len(path))]
    return tuple(row.argsort(descending=True).tolist().index(token) for row, token in zip(logits, path, strict=True))


def test_masked_tokens_are_never_proposed():
    def masked(level, trees):
        logits = feed(level, trees)
        logits[:, 2:] = -math.inf
        return logits

    draft = grow_trees([tree(sequence([1, 2]), Beam(4, 4), 3, 50)], masked, sample="match")[0]
    assert set(draft.tokens[1:].tolist()) <= {0, 1}


def test_nan_is_an_error():
    with pytest.raises(NumericsError):
        grow_trees([tree(sequence([1]), Beam(2, 2), 2, 5)], lambda *_: torch.full((1, 7), math.nan), sample="match")


def test_nodes_that_have_their_logits_in_common_are_as_if_each_had_its_own():
    """As the slots of a block say the same behind every path."""
    slots = torch.randn(4, 7, generator=torch.Generator().manual_seed(4))
    slots[1, 2] = math.nan

    def alike(level, trees):
        owners = [i for i, tree in enumerate(trees) for _ in tree.frontier]
        return Alike(rows=slots[[level + 2 * (tree.seq is not bad[1]) for tree in trees]], owners=owners)

    def each(level, trees):
        found = alike(level, trees)
        return found.rows[found.owners]

    bad = [sequence([1, 2]), sequence([1, 2])]
    for params in ({}, {"logit_bias": {3: 2.0}}, {"temperature": 1.0}):
        trees = [tree(sequence([1, 2], **params), BestPaths(9), 2, 9)]
        others = [tree(one.seq, BestPaths(9), 2, 9) for one in trees]
        found = (grow_trees(trees, alike, sample="match"), grow_trees(others, each, sample="match"))
        assert paths(found[0][0]) == paths(found[1][0]) and found[0][0].num_nodes > 3
    with pytest.raises(NumericsError, match=f"sequence {bad[1].id}:"):
        grow_trees([tree(seq, BestPaths(9), 2, 9) for seq in bad], alike, sample="match")


def test_slots_make_a_tree_of_the_best_paths_or_of_levels():
    said = torch.log(torch.tensor([[0.9, 0.05, 0.05], [0.5, 0.3, 0.2], [0.4, 0.3, 0.3]]))
    seq, found = sequence([1, 2]), {}
    for best in (True, False):
        options = BlockOptions(width=2, nodes=4, best_first=best)
        (draft,) = grow_marginals(options, [seq], [3], [Budget(depth=3)], {seq.id: said})
        found[best] = paths(draft)
    assert found[True] == {(0,), (0, 0), (0, 1), (0, 0, 0)} != found[False]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}])
def test_an_expansion_has_so_many_children_on_each_level(params):
    counts = (1, 1, 3, 1, 1)
    draft = grow_trees([tree(sequence([1, 2], **params), Levels(counts), 5, num_nodes(counts))], feed, sample="match")[
        0
    ]
    grown = host_tree(draft)
    assert draft.num_nodes == 1 + num_nodes(counts) == 12
    assert all(len(c) == (*counts, 0)[depth] for c, depth in zip(grown.children, grown.depths, strict=True))


def test_children_with_replacement_are_independent():
    n, pairs = 4000, torch.zeros(9, 9, dtype=torch.float64)
    for seed in range(n):
        seq = sequence([1, 2], seed=seed, temperature=1.0)
        draft = grow_trees([tree(seq, Levels((2,)), 1, 9)], feed, sample="match", replacement=True)[0]
        pairs[tuple(draft.tokens[1:].tolist())] += 1
    expected = torch.outer(draft.q[0], draft.q[0]) * n
    likely = expected > 5
    assert pairs.diagonal().sum() > 0
    assert float(((pairs - expected) ** 2 / expected)[likely].sum()) < 130  # at most 80 degrees of freedom


def test_a_deterministic_tree_guesses_nothing_that_is_masked():
    """Beside an unmasked one, whose guesses stay as they are: allowed are the next even or the next odd tokens."""

    class InTurn:
        def advance(self, token):
            pass

        def allowed(self, path):
            return torch.arange(9) % 2 == len(path) % 2

    free, masked = sequence([1, 2]), sequence([3, 4])
    masked.constraint = InTurn()
    alone, drafted = grow([free])[0], grow([free, masked])
    assert paths(drafted[0]) == paths(alone)
    assert any(token % 2 != depth % 2 for path in paths(alone) for depth, token in enumerate(path))
    found = paths(drafted[1])
    assert found == paths(grow([masked])[0])
    assert len(found) > 5 and all(token % 2 == depth % 2 for path in found for depth, token in enumerate(path))


@pytest.mark.parametrize("nodes", [1, 3, 12, 40])
def test_a_best_first_tree_has_the_best_paths_of_all(nodes):
    """They are those of the whole tree, of which no level is cut."""
    for tokens in ([1, 2], [3, 4], [8]):
        draft = grow_trees([tree(sequence(tokens), BestPaths(nodes), 3, nodes)], feed, sample="match")[0]
        assert paths(draft) == brute_force(tokens, 3, nodes, min(nodes, 9), 9**3)
    one = tree(sequence([1, 2]), BestPaths(3), 4, 3)
    grow_trees([one], feed, sample="match")
    assert len(one.expanded) < 1 + 3 * 3, "a node that is not among the best is not fed"
    beam = grow([sequence([1, 2])], depth=3, nodes=12, width=2, beam=2)[0]
    assert paths(beam) != brute_force([1, 2], 3, 12, 9, 9**3), "a narrow beam misses some, so the test can fail"
