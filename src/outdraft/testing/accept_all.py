"""The crudest fault: every guess is kept, whatever the target says. Tree: the first child at every node.

For drafters so weak that a subtler fault (`outdraft.testing.planted`) would change next to nothing of the output.
"""

from outdraft.core.method import RuleMethod
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoRuleOptions
from outdraft.verify.shared.per_draft import PerDraft


def accept_all(case: Case) -> Verdict:
    """Down the first children to a leaf, then one token of the target."""
    node, depth = 0, 0
    while children := case.tree.children[node]:
        node, depth = children[0], depth + 1
    return case.verdict(node, case.coins.draw(case.p[node], depth))


METHOD = RuleMethod(
    name="accept_all",
    summary="a lossy rule on purpose: keeps every guess",
    build=lambda options: PerDraft(accept_all, lossless=False),
    options=NoRuleOptions,
    judges=("chain", "tree"),
)
