"""Block verification: judge a chain as a whole, so that a token's surplus can pay for a later one's deficit.

Paper: Block Verification Accelerates Speculative Decoding, 2024, https://arxiv.org/abs/2403.10444
In: chains x_1..x_k, sampled from q or deterministic. With P_0 = 1, P_i = min(1, P_{i-1} p(x_i) / q(x_i)):

    S_i = sum_x (P_i p(x | x_1..x_i) - q(x | x_1..x_i))_+      h_i = S_i / (S_i + 1 - P_i)      h_k = P_k

the accepted length is the largest i whose coin of probability h_i falls true; then one token from p (i = k), or from
(P_i p - q)_+. Out: the accepted prefix and one more token with the target's distribution; on average never fewer tokens
than `rejection` emits.
"""

import torch

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoRuleOptions
from outdraft.verify.shared.chain import chain_nodes, rows_of, token_masses
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.proposal import Proposal, draw_bonus, normalised, prefix_weight, ratio


def judge(case: Case) -> Verdict:
    """Ask from the longest prefix to the shortest; whole rows are read only if the first coin says no."""
    nodes = chain_nodes(case, "block")
    p, q = token_masses(case, nodes)
    last = len(p)
    weights = [1.0]  # P_0 .. P_k
    for p_x, q_x in zip(p, q, strict=True):
        weights.append(ratio(weights[-1] * p_x, q_x))
    if last == 0 or case.coins.flip(weights[last], nodes[last]):
        return case.verdict(nodes[last], draw_bonus(case, nodes[last]))

    surplus = _surplus(case, nodes, weights, p)
    length = last - 1
    while length > 0 and not case.coins.flip(prefix_weight(surplus[length], weights[length]), nodes[length]):
        length -= 1
    end = nodes[length]
    proposal = Proposal(None if case.q is None else case.q[end])
    excess = proposal.excess(weights[length] * case.p[end], case.tree.tokens[nodes[length + 1]])
    distribution, _ = normalised(excess, case.p[end])
    return case.verdict(end, case.coins.draw(distribution, length))


def _surplus(case: Case, nodes: list[int], weights: list[float], p: list[float]) -> list[float]:
    """S_0 .. S_{k-1}. A deterministic guess needs no sum over the vocabulary."""
    inner = nodes[:-1]
    if case.q is None:
        return [weight * max(0.0, 1 - p_x) for weight, p_x in zip(weights, p, strict=False)]
    scale = torch.tensor(weights[:-1], dtype=case.p.dtype, device=case.p.device)  # [k]
    p_rows, q_rows = rows_of(case.p, inner), rows_of(case.q, inner)
    sums: list[float] = (scale[:, None] * p_rows).sub_(q_rows).clamp_(min=0).sum(-1).tolist()
    return sums


METHOD = RuleMethod(
    name="block",
    summary="judges a chain as a whole; accepts at least as much as rejection",
    build=lambda options: PerDraft(judge),
    options=NoRuleOptions,
    paper=arxiv("2403.10444", "Block Verification Accelerates Speculative Decoding"),
    judges=("chain",),
    prefers_drawn=True,
)
