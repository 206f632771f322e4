"""How deep a guess may be: the budget, cut where the context ends.

Data in: a sequence and its budget; data out: a depth of at least 0.
"""

from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence


def usable_depth(seq: Sequence, budget: Budget) -> int:
    """Draft tokens along the longest path: no node may stand beyond the target's last position."""
    depth = min(budget.depth, seq.max_len - len(seq.tokens))
    if budget.nodes is not None:
        depth = min(depth, budget.nodes)
    return max(0, depth)
