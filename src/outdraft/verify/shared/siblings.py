"""A node's children one by one, each against what is left of p and q: the walk that several rules are settings of.

At a node, P = p and Q = q. Child x: accept with a(x) = min(1, P(x) / Q(x)); after a rejection P becomes P - a Q,
normalised, and Q loses x and is renormalised. No child accepted, or no mass left in Q: draw from P.

    without replacement    the above                                               exact
    gates                  a(x) = 0 where a gate is shut, whatever the coin        exact: the residual knows a
    leniency l > 1         a(x) = min(1, l P(x) / Q(x)), residual (l P - Q)_+      lossy

Reference: Lemma A, in `proposal.py`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case
from outdraft.verify.shared.proposal import Proposals, draw_bonus, normalised, ratio

Gate = Callable[[Case, int], Tensor]  # case, child -> [V] bool: which tokens may be accepted in that child's place


def judge_siblings(case: Case, *, gate: Gate | None = None, leniency: float = 1.0) -> Verdict:
    """Walk from the root to the first node none of whose children is accepted."""
    tree, node, depth = case.tree, 0, 0
    while True:
        if not tree.children[node]:
            return case.verdict(node, draw_bonus(case, node))
        distribution = case.p[node]  # [V]
        proposals = Proposals(case)
        accepted = None
        for child in tree.children[node]:
            token, proposal = tree.tokens[child], proposals.of(child)
            mass = proposal.mass(token)
            if mass <= 0:
                continue
            is_open = gate(case, child) if gate is not None else None
            may_pass = is_open is None or bool(is_open[token])
            if may_pass and case.coins.flip(ratio(leniency * float(distribution[token]), mass), child):
                accepted = child
                break
            excess = proposal.excess(leniency * distribution, token)
            distribution, _ = normalised(
                excess if is_open is None else torch.where(is_open, excess, distribution), case.p[node]
            )
            proposal.drop(token)
        if accepted is None:
            return case.verdict(node, case.coins.draw(distribution, depth))
        node, depth = accepted, depth + 1
