"""Token-wise rejection sampling on a chain: accept x with min(1, p(x) / q(x)); after a rejection draw from (p - q)_+.

Papers: Fast Inference from Transformers via Speculative Decoding, 2022, https://arxiv.org/abs/2211.17192;
Accelerating Large Language Model Decoding with Speculative Sampling, 2023, https://arxiv.org/abs/2302.01318
In: chains, sampled from q or deterministic (q is then one-hot: accept with p(x)). Out: the accepted prefix and one more
token, whose joint distribution is the target's.
"""

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoRuleOptions
from outdraft.verify.shared.chain import chain_nodes, token_masses
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.proposal import Proposal, draw_bonus, normalised, ratio


def judge(case: Case) -> Verdict:
    """Stop at the first rejection."""
    nodes = chain_nodes(case, "rejection")
    p, q = token_masses(case, nodes)
    accepted = 0
    while accepted < len(p) and case.coins.flip(ratio(p[accepted], q[accepted]), nodes[accepted + 1]):
        accepted += 1
    end = nodes[accepted]
    if accepted == len(p):
        return case.verdict(end, draw_bonus(case, end))
    distribution = case.p[end]  # [V]
    proposal = Proposal(None if case.q is None else case.q[end])
    distribution, _ = normalised(proposal.excess(distribution, case.tree.tokens[nodes[accepted + 1]]), distribution)
    return case.verdict(end, case.coins.draw(distribution, accepted))


METHOD = RuleMethod(
    name="rejection",
    summary="token-wise rejection sampling, the classic rule for chains",
    build=lambda options: PerDraft(judge),
    options=NoRuleOptions,
    paper=arxiv("2211.17192", "Fast Inference from Transformers via Speculative Decoding"),
    judges=("chain",),
    prefers_drawn=True,
)
