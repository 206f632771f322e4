"""A fault on purpose: an acceptance rule that looks right and is not. A proof that does not catch it proves nothing.

`METHOD` is the rule that `outdraft audit --plant-bias` puts in the honest rule's place: it works on any draft.
Reference: every rule in `outdraft.verify`.
"""

from outdraft.core.method import RuleMethod
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoRuleOptions
from outdraft.verify.shared.per_draft import PerDraft

THRESHOLD = 0.3


def accept_probable(case: Case) -> Verdict:
    """Keep a child if the target gives it more than 0.3, else draw from p: biased to what was guessed."""
    tree, node, depth = case.tree, 0, 0
    while True:
        likely = (child for child in tree.children[node] if float(case.p[node, tree.tokens[child]]) > THRESHOLD)
        if (accepted := next(likely, None)) is None:
            return case.verdict(node, case.coins.draw(case.p[node], depth))
        node, depth = accepted, depth + 1


METHOD = RuleMethod(
    name="planted",
    summary="a lossy rule on purpose: accepts whatever the target finds likely enough",
    build=lambda options: PerDraft(accept_probable, lossless=False),
    options=NoRuleOptions,
    judges=("chain", "tree"),
)
