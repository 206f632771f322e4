r"""A draft tree that is kept across rounds: the accepted path becomes text, and the nodes below it remain.

    p - a (0.7) - b (0.6)          text goes on with a, b:     b - c (0.9) - ...
      \           \ d (0.2)                                      \ e (0.1)
       x (0.2)     ...             with anything that was not guessed: an empty tree

A path's probability is the product of its nodes' from the pending token on, whichever round they were guessed in; what
has become text counts as 1. Data in: a text and the children of fed nodes; data out: the node to feed next, drafts.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

import torch

from outdraft.core.draft import Draft

Child = tuple[int, float]  # a token, and the draft model's probability of it


class PacedTree:
    """Node 0 is the pending token; parents precede their children."""

    __slots__ = ("_length", "depths", "fed", "parents", "paths", "probs", "tokens")

    def __init__(self, length: int) -> None:
        self._length = length  # of the text that ends with node 0
        self._plant(length)

    def _plant(self, length: int) -> None:
        self._length = length
        self.tokens, self.parents, self.depths = [-1], [-1], [0]
        self.probs, self.paths = [1.0], [1.0]  # of a node; of the path to it
        self.fed = [False]  # whether its children are known

    @property
    def num_fed(self) -> int:
        """Nodes whose children are known."""
        return sum(self.fed)

    def path(self, node: int) -> list[int]:
        """Tokens from below the pending one to `node`."""
        found = []
        while node > 0:
            found.append(self.tokens[node])
            node = self.parents[node]
        return found[::-1]

    def follow(self, tokens: Seq[int]) -> None:
        """The text has grown: keep what hangs below its new end, or nothing."""
        root: int | None = 0
        for token in tokens[self._length :]:
            root = next(
                (i for i, parent in enumerate(self.parents) if parent == root and self.tokens[i] == token), None
            )
            if root is None:
                self._plant(len(tokens))
                return
        if root:
            self._keep_below(root)
        self._length = len(tokens)

    def _keep_below(self, root: int) -> None:
        kept = {root: 0}
        for node in range(root + 1, len(self.tokens)):
            if self.parents[node] in kept:
                kept[node] = len(kept)
        depth = self.depths[root]
        self.parents = [-1, *(kept[self.parents[node]] for node in kept if node != root)]
        self.tokens = [self.tokens[node] for node in kept]
        self.depths = [self.depths[node] - depth for node in kept]
        self.probs = [1.0, *(self.probs[node] for node in kept if node != root)]
        self.paths = [1.0]
        for parent, prob in zip(self.parents[1:], self.probs[1:], strict=True):
            self.paths.append(self.paths[parent] * prob)
        self.fed = [self.fed[node] for node in kept]

    def likeliest(self, max_depth: int, max_nodes: int, least: float = 0.0) -> int | None:
        """The node with the most probable path that is not fed and may have children; None where there is none, or
        where they would not be offered.

        `least`: a branch ends at a less probable token. The best `max_nodes` are offered, and a child is never more
        probable than its parent.
        """
        shallow = (node for node, fed in enumerate(self.fed) if not fed and self.depths[node] < max_depth)
        best = max(
            (node for node in shallow if self.probs[node] >= least),
            key=lambda node: (self.paths[node], -node),
            default=None,
        )
        if best is None or sum(path > self.paths[best] for path in self.paths) > max_nodes:
            return None
        return best

    def feed(self, node: int, children: Iterable[Child]) -> None:
        """What the draft model thinks follows `node`, best first; what it holds for impossible is left out."""
        self.fed[node] = True
        for token, prob in children:
            if prob <= 0:
                break
            self.tokens.append(token)
            self.parents.append(node)
            self.depths.append(self.depths[node] + 1)
            self.probs.append(prob)
            self.paths.append(self.paths[node] * prob)
            self.fed.append(False)

    def draft(self, pending: int, *, max_depth: int, max_nodes: int, confident: bool) -> Draft:
        """The best nodes, each with its ancestors. `confident`: with their probabilities."""
        nodes = [node for node, depth in enumerate(self.depths) if 0 < depth <= max_depth]
        best = sorted(nodes, key=lambda node: (-self.paths[node], node))[:max_nodes]
        place = {node: i for i, node in enumerate([0, *sorted(best)])}
        return Draft(
            tokens=torch.tensor([self.tokens[node] if node else pending for node in place]),
            parents=torch.tensor([place[self.parents[node]] if node else -1 for node in place]),
            confidence=torch.tensor([self.probs[node] for node in place]) if confident else None,
        )
