"""Traversal verification: judge a tree from its leaves to its root, so that no prefix is thrown away too early.

Paper: Traversal Verification for Speculative Tree Decoding, 2025, https://arxiv.org/abs/2505.12398
visit(node, a), where a(root) = 1, P = p(. | node), Q = q(. | node); for each child t in drawing order:

    visit(t, min(1, a P(t) / Q(t)))  accepts: done.   Otherwise  R = (a P - Q)_+,  S = sum R,
    a <- S / (S + 1 - a),  P <- R / S,  Q loses t and is renormalised

and after the last child accept this node with probability a and draw the extra token from P; else go to the parent.
In: trees and chains (there it is `block`), sampled without replacement or deterministic (one-hot Q for each child).
Out: a path and one more token with the target's distribution; on average at least as many as `multi_draft`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoRuleOptions
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.proposal import Proposal, Proposals, draw_bonus, normalised, prefix_weight, ratio


@dataclass(slots=True)
class _Visit:
    """A node and what is left to do there. `weight` is a: how much of the target's distribution has reached it."""

    node: int
    weight: float
    distribution: Tensor  # [V], P
    proposals: Proposals
    children: Iterator[int]
    asked: tuple[Proposal, int] | None = None  # the child that is judged now: where it was drawn from, and its token

    def descend(self, case: Case) -> tuple[int, float] | None:
        """The next child that may be accepted, and its weight."""
        for child in self.children:
            token, proposal = case.tree.tokens[child], self.proposals.of(child)
            mass = proposal.mass(token)
            if mass <= 0:
                continue
            self.asked = proposal, token
            below = ratio(self.weight * float(self.distribution[token]), mass)
            if below > 0:
                return child, below
            self.refuse(case)
            if self.weight <= 0:
                break
        return None

    def refuse(self, case: Case) -> None:
        """The child that was judged is not accepted."""
        assert self.asked is not None
        proposal, token = self.asked
        excess = proposal.excess(self.weight * self.distribution, token)
        self.distribution, surplus = normalised(excess, case.p[self.node])
        self.weight = prefix_weight(surplus, self.weight)
        proposal.drop(token)


def judge(case: Case) -> Verdict:
    """The root is always accepted, so there is always a verdict. A draft may be deeper than Python's own stack."""
    tree = case.tree

    def visit(node: int, weight: float) -> _Visit:
        return _Visit(node, weight, case.p[node], Proposals(case), iter(tree.children[node]))

    path = [visit(0, 1.0)]
    while True:
        here = path[-1]
        node, below = here.node, here.descend(case) if here.weight > 0 else None
        if below is not None:
            path.append(visit(*below))
        elif here.weight > 0 and (node == 0 or case.coins.flip(here.weight, node)):
            drawn = bool(tree.children[node])
            token = case.coins.draw(here.distribution, tree.depths[node]) if drawn else draw_bonus(case, node)
            return case.verdict(node, token)
        else:
            path.pop()
            path[-1].refuse(case)


METHOD = RuleMethod(
    name="traversal",
    summary="judges a tree from the leaves to the root; accepts at least as much as multi_draft",
    build=lambda options: PerDraft(judge),
    options=NoRuleOptions,
    paper=arxiv("2505.12398", "Traversal Verification for Speculative Tree Decoding"),
    judges=("chain", "tree"),
    prefers_drawn=True,
)
