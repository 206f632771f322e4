"""Fixed point: accept the longest prefix of a chain that equals the target's own output given that chain.

Paper: Accelerating Transformer Inference for Translation via Parallel Decoding, 2023, https://arxiv.org/abs/2305.10427
In: chains w_1 .. w_m and p [N, V]; o_i is the target's token after w_1 .. w_i: its best one, or for a sampled request
its keyed draw at that position. Accepted: the longest prefix with w_(i+1) = o_i; then the first o that differs.
Out: plain decoding's text for greedy requests, and for sampled ones the text that the seed alone decides. On chains
this is `coupled`, under the name and in the words of Jacobi decoding.
"""

from outdraft.core.method import Paper, RuleMethod
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoOptions, PerDraft, follow_draws
from outdraft.verify.shared.chain import chain_nodes


def judge(case: Case) -> Verdict:
    """Outputs are drawn as far as they are needed."""
    chain_nodes(case, "fixed_point")
    return follow_draws(case)


METHOD = RuleMethod(
    name="fixed_point",
    summary="the longest prefix that equals the target's output on it: Jacobi decoding's rule",
    build=lambda options: PerDraft(judge, coupled=True),
    options=NoOptions,
    paper=Paper(
        title="Accelerating Transformer Inference for Translation via Parallel Decoding",
        year=2023,
        link="https://arxiv.org/abs/2305.10427",
    ),
    judges=("chain",),
    prefers_drawn=True,
)
