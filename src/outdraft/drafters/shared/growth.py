r"""Tree growth: level by level, expand the most probable frontier nodes, each with several children.

    level 0  expand the pending node          p                 width 2: two children each,
    level 1  expand the best `beam`          / \                the best 2 of a level are expanded
    ...                                     a   b
                                           / \ / \

Deterministic trees (top-k children) may be pruned freely: the best `max_nodes` by path probability stay, and a parent
is never less probable than its child. Sampled trees (children without replacement) are never pruned, since dropping a
drawn token for its value would bend the law; they stop growing instead. Data in: `feed`; data out: one draft each.
"""

from collections.abc import Sequence as Seq
from math import exp, inf, log
from typing import Protocol

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import Sample, check_finite, takes_argmax
from outdraft.drafters.shared.limits import Floor, floors
from outdraft.kernels.choice import top_tokens
from outdraft.sampling.warp import warp_nodes


class Tree:
    """One sequence's tree while it grows."""

    __slots__ = ("depths", "expanded", "frontier", "laws", "max_depth", "max_nodes", "parents", "probs", "scores",
                 "seq", "tokens")  # fmt: skip

    def __init__(self, seq: Sequence, max_depth: int, max_nodes: int) -> None:
        self.seq = seq
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.tokens = [seq.pending]
        self.parents = [-1]
        self.depths = [0]
        self.scores = [0.0]  # log probability of the path
        self.probs = [1.0]  # draft probability of the node itself
        self.laws: dict[int, Tensor] = {}  # node -> [V] the law its children were drawn from
        self.expanded: list[int] = []  # nodes fed so far, in order; the first is the pending token
        self.frontier = [0] if min(max_depth, max_nodes) > 0 else []  # nodes to feed next

    def path(self, node: int) -> list[int]:
        """Draft tokens from below the pending token to `node`."""
        path = []
        while node > 0:
            path.append(self.tokens[node])
            node = self.parents[node]
        return path[::-1]

    def rows_above(self) -> list[list[int]]:
        """For each frontier node the guess rows of its ancestors, topmost first.

        Guess row r is the r-th node fed after the pending token, whose own row belongs to the text.
        """
        row_of = {node: row for row, node in enumerate(self.expanded, start=-1)}
        above = []
        for node in self.frontier:
            rows, node = [], self.parents[node]
            while node > 0:
                rows.append(row_of[node])
                node = self.parents[node]
            above.append(rows[::-1])
        return above

    def add(self, parent: int, token: int, log_prob: float, prob: float) -> None:
        """One more child of `parent`, the last among its siblings."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.scores.append(self.scores[parent] + log_prob)
        self.probs.append(prob)


class FeedTrees(Protocol):
    """The network, as the loop sees it."""

    def __call__(self, level: int, trees: list[Tree]) -> Tensor:
        """Feed the `frontier` of each tree (none is empty): logits [n, V] of all these nodes, tree after tree."""
        ...


def grow_trees(
    trees: Seq[Tree],
    feed: FeedTrees,
    *,
    sample: Sample,
    width: int,
    beam: int,
    confidence_threshold: float = 0.0,
    budgets: Seq[Budget] | None = None,
) -> list[Draft]:
    """Grow all trees together. `width`: children of an expanded node; `beam`: nodes expanded on one level.

    `confidence_threshold`: the drafter's own; `budgets` may ask for more.
    """
    ends = dict(zip(map(id, trees), floors(len(trees), confidence_threshold, budgets), strict=True))
    asked = any(end.is_asked for end in ends.values())
    level = 0
    while live := [tree for tree in trees if tree.frontier]:
        logits = feed(level, live)
        start = 0
        for tree, rows in zip(live, _top(live, logits, width), strict=True):
            fed = tree.frontier
            first = len(tree.tokens)
            if takes_argmax(tree.seq, sample):
                for node, (ids, log_probs, probs) in zip(fed, rows, strict=True):
                    for token, log_prob, prob in zip(ids, log_probs, probs, strict=True):
                        if prob > 0:
                            tree.add(node, token, log_prob, prob)
            else:
                _draw(tree, logits[start : start + len(fed)], width)
            start += len(fed)
            tree.expanded += fed
            tree.frontier = _next(tree, first, level + 1, beam, ends[id(tree)], sample)
        level += 1
    return [_finish(tree, sample, asked) for tree in trees]


Row = tuple[list[int], list[float], list[float]]


def _top(trees: Seq[Tree], logits: Tensor, width: int) -> list[list[Row]]:
    """The `width` most probable tokens of every fed node, with log probability and probability."""
    width = min(width, logits.shape[-1])
    if (found := top_tokens(logits, width)) is not None:
        rows = iter([(ids, logs, [exp(log) for log in logs]) for ids, logs in zip(*found, strict=True)])
        return [[next(rows) for _ in tree.frontier] for tree in trees]
    logits = logits.float() if logits.dtype != torch.float64 else logits
    best = torch.log_softmax(logits, -1).topk(width, -1)
    ids, log_probs, probs = best.indices.tolist(), best.values.tolist(), best.values.exp().tolist()
    owners = [i for i, tree in enumerate(trees) for _ in tree.frontier]
    check_finite([tree.seq for tree in trees], owners, [row[0] for row in log_probs])
    rows = iter(zip(ids, log_probs, probs, strict=True))
    return [[next(rows) for _ in tree.frontier] for tree in trees]


def _draw(tree: Tree, logits: Tensor, width: int) -> None:
    """Children of the frontier, drawn without replacement from the warped law, in drawing order."""
    seq, paths = tree.seq, [tree.path(node) for node in tree.frontier]
    coins = seq.draft_coins(seq)
    laws = warp_nodes(seq, logits, paths)
    for node, law in zip(tree.frontier, laws, strict=True):
        count = min(width, tree.max_nodes + 1 - len(tree.tokens))  # fixed before the draw
        if count <= 0:
            break
        tree.laws[node] = law
        for token in coins.draw(law, tree.depths[node], node, count):
            prob = law[token]
            tree.add(node, token, float(torch.log(prob)), float(prob))


def _next(tree: Tree, first: int, level: int, beam: int, end: Floor, sample: Sample) -> list[int]:
    """Which of the nodes from `first` on to expand: the `beam` most probable paths that are not unsure."""
    if level >= tree.max_depth or (not takes_argmax(tree.seq, sample) and len(tree.tokens) > tree.max_nodes):
        return []
    least = log(end.path) if end.path > 0 else -inf
    new = range(first, len(tree.tokens))
    sure = [node for node in new if tree.probs[node] >= end.token and tree.scores[node] >= least]
    return sorted(sorted(sure, key=lambda node: (-tree.scores[node], node))[:beam])


def _finish(tree: Tree, sample: Sample, asked: bool) -> Draft:
    """The grown tree as a datum; a deterministic one keeps its most probable `max_nodes` nodes."""
    n = len(tree.tokens)
    if takes_argmax(tree.seq, sample):
        best = sorted(range(1, n), key=lambda node: (-tree.scores[node], node))[: tree.max_nodes]
        keep = [0, *sorted(best)]
        at = {node: i for i, node in enumerate(keep)}
        return Draft(
            tokens=torch.tensor([tree.tokens[node] for node in keep]),
            parents=torch.tensor([at.get(tree.parents[node], -1) for node in keep]),
            confidence=torch.tensor([tree.probs[node] for node in keep]) if asked else None,
        )
    q = None
    if tree.laws:
        some = next(iter(tree.laws.values()))
        q = some.new_zeros(n, some.shape[0])
        q[list(tree.laws)] = torch.stack(list(tree.laws.values()))
    return Draft(
        tokens=torch.tensor(tree.tokens),
        parents=torch.tensor(tree.parents),
        q=q,
        confidence=torch.tensor(tree.probs) if asked else None,
    )
