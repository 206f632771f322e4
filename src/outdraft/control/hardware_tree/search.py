"""How many tokens the best tree of so many nodes and such a depth makes, if its k-th child is accepted with p_k.

Chen et al., "Sequoia: scalable, robust, and hardware-aware speculative decoding", 2024,
https://arxiv.org/abs/2402.12374:

    T(1, d, 0) = 1        T(m, d, b) = max over y of  T(y, d, b - 1) + p_b * max over b' of T(m - y, d - 1, b')

m nodes with the root, depth at most d, b children at the root; the last child's subtree has m - y nodes. Data in: rates
by rank; data out: a table.
"""

from collections.abc import Sequence as Seq

import numpy as np
from numpy.typing import NDArray


def best_tokens(rates: Seq[float], max_nodes: int, max_depth: int) -> NDArray[np.float64]:
    """table[d, m]: tokens a pass, the target's own included, of the best tree of m nodes (root included) and depth d.

    -inf where no such tree exists (m = 0; more nodes than len(rates) children allow). Sizes are exact.
    """
    none = -np.inf
    table = np.full((max_depth + 1, max_nodes + 1), none)
    table[:, 1] = 1.0
    for depth in range(1, max_depth + 1):
        below = table[depth - 1]
        branches = np.full(max_nodes + 1, none)  # T(., depth, b) of the b at hand
        branches[1] = 1.0
        for rate in rates:
            wider = np.full(max_nodes + 1, none)
            for size in range(2, max_nodes + 1):
                left = branches[1:size]  # y = 1 .. size - 1 nodes before the last child
                wider[size] = (left + rate * below[size - 1 : 0 : -1]).max()
            branches = wider
            table[depth] = np.maximum(table[depth], branches)
    return table
