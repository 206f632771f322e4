r"""The best tree of a given size: dynamic programming over sizes, depths and numbers of children.

    rank k child of an accepted node is itself the accepted one with probability p_k, whatever the node

    T(1, d, 0) = 1        T(m, d, b) = max over y of  T(y, d, b - 1) + p_b max over b' of T(m - y, d - 1, b')

T(m, d, b): expected tokens of m nodes, the root among them, at most d levels below it, the root having b children.
Chen et al., "Sequoia: scalable, robust, and hardware-aware speculative decoding", 2024,
https://arxiv.org/abs/2402.12374. One paper's search lies here, and not with its method, because one drafter grows such
trees and one policy sizes them, and neither may import the other: what both stand on is what a rule makes of siblings.
Data in: p_1 .. p_K; data out: trees and what they are expected to bring.
"""

from collections.abc import Sequence as Seq

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Topology = tuple[tuple[int, ...], ...]  # children of each node, by rank; node 0 is the root, parents come first


class BestTrees:
    """All best trees of up to `max_nodes` nodes (the root included) and up to `max_depth` levels below the root."""

    def __init__(self, rates: Seq[float], *, max_nodes: int, max_depth: int) -> None:
        self._max_nodes, self._max_depth = max_nodes, max_depth
        width = min(len(rates), max_nodes - 1)
        shape = (max_depth + 1, width + 1, max_nodes + 1)
        self._value = np.full(shape, -np.inf)  # T [d, b, m]
        self._first = np.zeros(shape, dtype=np.int64)  # the y that was best
        self.values = np.full((max_depth + 1, max_nodes + 1), -np.inf)  # [d, m] the largest over b; -inf: no such tree
        self._value[:, 0, 1] = 1
        self.values[0, 1] = 1
        for d in range(1, max_depth + 1):
            for b in range(1, width + 1):
                self._add_child(d, b, rates[b - 1])
            self.values[d] = self._value[d].max(0)

    def _add_child(self, d: int, b: int, rate: float) -> None:
        below, most = self.values[d - 1], self._max_nodes
        gains = np.full(2 * most + 1, -np.inf)  # [M - n] what a child with n nodes in its tree brings; then nothing
        grown = below > -np.inf
        gains[most::-1][grown] = rate * below[grown]
        sums = self._value[d, b - 1] + sliding_window_view(gains, most + 1)[::-1]  # [m, y]
        self._first[d, b] = sums.argmax(1)
        self._value[d, b] = sums.max(1)

    def tree(self, num_nodes: int, depth: int) -> Topology:
        """The best tree of exactly so many nodes."""
        children: list[tuple[int, ...]] = []
        self._unfold(num_nodes, depth, children)
        return tuple(children)

    def _unfold(self, m: int, d: int, children: list[tuple[int, ...]]) -> int:
        node = len(children)
        children.append(())
        sizes: list[int] = []  # of the children's trees, the last child's first
        b = int(self._value[d, :, m].argmax())
        while b:
            y = int(self._first[d, b, m])
            sizes.append(m - y)
            m, b = y, b - 1
        children[node] = tuple(self._unfold(size, d - 1, children) for size in reversed(sizes))
        return node


def choose_size(trees: BestTrees, draft_costs: Seq[float], pass_costs: Seq[float]) -> tuple[int, int]:
    """(m, d) with the least cost a token: (draft_costs[d] + pass_costs[m]) / T(m, d). (1, 0) is plain decoding.

    In one unit: what drafting d levels costs, and a target pass over m nodes; infinite where it may not be chosen.
    """
    values = np.maximum(trees.values[: len(draft_costs), : len(pass_costs)], 1e-9)  # [d, m]
    at = int((np.add.outer(draft_costs, pass_costs) / values).argmin())
    return at % len(pass_costs), at // len(pass_costs)
