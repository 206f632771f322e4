"""The target's own draws: at each node its keyed token z, then on to the child whose id is nearest to z, if near.

    distance 0    the child that is z: what is emitted does not depend on the guess
    above         a child may differ by so much: lossy

Data in: a case of any tree; data out: a path, and the first draw that no child was near to.
"""

from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case


def follow_draws(case: Case, *, distance: int = 0) -> Verdict:
    """One draw at each visited depth; of equally near siblings the elder."""
    tokens, node, depth = case.tree.tokens, 0, 0
    while True:
        token = case.coins.draw(case.p[node], depth)
        near = [(abs(tokens[child] - token), child) for child in case.tree.children[node]]
        off, child = min(near, default=(distance + 1, -1))
        if off > distance:
            return case.verdict(node, token)
        node, depth = child, depth + 1
