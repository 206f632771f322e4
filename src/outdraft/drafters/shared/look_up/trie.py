"""The tree builder of every look-up: continuations merged below the pending token, the heaviest nodes kept.

    paths  a b c  3     trie     p             tokens  [p, a, b, c, d]
           a b d  1              a 4           parents [-1, 0, 1, 2, 2]
                                 b 4           a node's score is the sum of the counts of the paths through it
                              c 3   d 1

Scores never grow along a path, so the heaviest nodes are a tree: nothing is kept without its parent. Data in: the
pending token and paths of token ids with counts; data out: token and parent lists, parents first.
"""

from collections.abc import Iterable

import torch

from outdraft.core.draft import Draft


class Trie:
    """Node 0 is the root; nodes are numbered as they came."""

    __slots__ = ("_children", "parents", "scores", "tokens")

    def __init__(self, root: int) -> None:
        self.tokens = [root]
        self.parents = [-1]
        self.scores = [0.0]  # the root's is not used
        self._children: dict[tuple[int, int], int] = {}

    def insert(self, path: Iterable[int], count: float = 1.0) -> bool:
        """Add a path from the root, seen `count` >= 0 times; whether that made a new node."""
        before, node = len(self.tokens), 0
        for token in path:
            node = self.grow(node, token, count)
        return len(self.tokens) > before

    def grow(self, node: int, token: int, score: float) -> int:
        """The child `token` of `node`, made if need be, `score` heavier; never let it outweigh `node` itself."""
        child = self._children.get((node, token))
        if child is None:
            child = self._children[node, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(node)
            self.scores.append(score)
        else:
            self.scores[child] += score
        return child

    def heaviest(self, max_nodes: int) -> tuple[list[int], list[int]]:
        """Tokens and parents of the root and the `max_nodes` heaviest others, older ones first where scores tie."""
        if len(self.tokens) <= max_nodes + 1:
            return self.tokens, self.parents
        ranked = sorted(range(1, len(self.tokens)), key=lambda node: -self.scores[node])
        keep = [0, *sorted(ranked[:max_nodes])]
        places = {node: place for place, node in enumerate(keep)}
        return [self.tokens[node] for node in keep], [places.get(self.parents[node], -1) for node in keep]

    def draft(self, max_nodes: int) -> Draft:
        """A deterministic guess of at most `max_nodes` nodes below the root: no distribution is needed."""
        tokens, parents = self.heaviest(max_nodes)
        return Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents))
