"""Guesses merged into one tree below the pending token: equal beginnings share nodes.

    paths  a b c      trie      p            tokens  [p, a, b, c, d]
           a b d               a            parents [-1, 0, 1, 2, 2]
                               b
                              c d

Data in: the pending token and paths of token ids, best first. Data out: token and parent lists, parents first.
"""

from collections.abc import Iterable

import torch

from outdraft.core.draft import Draft


class Trie:
    """At most `max_nodes` nodes below the root."""

    __slots__ = ("_children", "_max_nodes", "parents", "tokens")

    def __init__(self, root: int, max_nodes: int) -> None:
        self.tokens = [root]
        self.parents = [-1]
        self._max_nodes = max_nodes
        self._children: dict[tuple[int, int], int] = {}

    @property
    def num_nodes(self) -> int:
        """The root included."""
        return len(self.tokens)

    def insert(self, path: Iterable[int]) -> bool:
        """Add a path as far as the limit allows; whether that made a new node."""
        node, grew = 0, False
        for token in path:
            child = self._children.get((node, token))
            if child is None:
                if len(self.tokens) > self._max_nodes:
                    break
                child = self._children[node, token] = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(node)
                grew = True
            node = child
        return grew

    def draft(self) -> Draft:
        """A deterministic guess: no law is needed."""
        return Draft(tokens=torch.tensor(self.tokens), parents=torch.tensor(self.parents))
