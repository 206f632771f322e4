"""The target's own draws: at each node its keyed token, then on to the child that is this token.

What is emitted does not depend on the guess. Data in: a case of any tree; data out: a path, and the first draw that no
child was.
"""

from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case


def follow_draws(case: Case) -> Verdict:
    """One draw at each visited depth; of equal siblings the elder."""
    node, depth = 0, 0
    while True:
        token = case.coins.draw(case.p[node], depth)
        if (child := case.tree.child(node, token)) is None:
            return case.verdict(node, token)
        node, depth = child, depth + 1
