"""Traversal verification: judge a tree from its leaves to its root, so that no prefix is thrown away too early.

Paper: Traversal Verification for Speculative Tree Decoding, 2025, https://arxiv.org/abs/2505.12398
visit(node, a), where a(root) = 1, P = p(. | node), Q = q(. | node); for each child t in drawing order:

    visit(t, min(1, a P(t) / Q(t)))  accepts: done.   Otherwise  R = (a P - Q)_+,  S = sum R,
    a <- S / (S + 1 - a),  P <- R / S,  Q loses t and is renormalised

and after the last child accept this node with probability a and draw the extra token from P; else tell the parent.
In: trees and chains (there it is `block`), sampled without replacement or deterministic (one-hot Q for each child).
Out: a path and one more token with the target's distribution; on average at least as many as `multi_draft`.
"""

from outdraft.core.method import Paper, RuleMethod
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.bonus import draw_bonus
from outdraft.verify.shared.case import Case, NoOptions, PerDraft
from outdraft.verify.shared.chain import ratio
from outdraft.verify.shared.proposal import Proposals, normalised, prefix_weight


def judge(case: Case) -> Verdict:
    """The root is always accepted, so there is always a verdict."""
    verdict = _visit(case, 0, 1.0)
    assert verdict is not None
    return verdict


def _visit(case: Case, node: int, weight: float) -> Verdict | None:
    """The verdict, if it ends in this subtree. `weight` is a: how much of the target's distribution has reached this
    node."""
    tree = case.tree
    distribution = case.p[node]  # [V]
    proposals = Proposals(case)
    for child in tree.children[node]:
        token, proposal = tree.tokens[child], proposals.of(child)
        mass = proposal.mass(token)
        if mass <= 0:
            continue
        below = ratio(weight * float(distribution[token]), mass)
        if below > 0 and (verdict := _visit(case, child, below)) is not None:
            return verdict
        distribution, surplus = normalised(proposal.excess(weight * distribution, token), case.p[node])
        weight = prefix_weight(surplus, weight)
        if weight <= 0:
            return None
        proposal.drop(token)
    if node > 0 and not case.coins.flip(weight, node):
        return None
    token = case.coins.draw(distribution, tree.depths[node]) if tree.children[node] else draw_bonus(case, node)
    return case.verdict(node, token)


METHOD = RuleMethod(
    name="traversal",
    summary="judges a tree from the leaves to the root; accepts at least as much as multi_draft",
    build=lambda options: PerDraft(judge),
    options=NoOptions,
    paper=Paper(
        title="Traversal Verification for Speculative Tree Decoding",
        year=2025,
        link="https://arxiv.org/abs/2505.12398",
    ),
    judges=("chain", "tree"),
)
