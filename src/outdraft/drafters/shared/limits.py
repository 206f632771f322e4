"""How deep and how large a guess may be: the budget, cut where the context ends.

Every node has a row in the target's cache while it is judged, also the rejected ones, so near the end of the context a
tree must not have more nodes than there is room for rows. Data in: a sequence and its budget; data out: numbers >= 0.
"""

from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence


def usable_depth(seq: Sequence, budget: Budget) -> int:
    """Draft tokens along the longest path."""
    return max(0, min(budget.depth, usable_nodes(seq, budget, budget.depth)))


def usable_nodes(seq: Sequence, budget: Budget, wanted: int) -> int:
    """Draft nodes in all, probes included, of the `wanted` ones."""
    if budget.nodes is not None:
        wanted = min(wanted, budget.nodes)
    return max(0, min(wanted, seq.max_len - len(seq.tokens)))
