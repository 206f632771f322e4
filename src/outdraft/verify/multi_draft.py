"""Multi-round rejection without replacement: siblings one by one, in drawing order, each against what is left of q.

Paper: Recursive Speculative Decoding: Accelerating LLM Inference via Sampling Without Replacement, 2024,
https://arxiv.org/abs/2402.14160
At a node, P = p and Q = q. Child x: accept with min(1, P(x) / Q(x)); after a rejection P becomes (P - Q)_+ normalised,
and Q loses x and is renormalised. No child accepted, or no mass left in Q: draw from P.
In: sampled trees (on chains this is `rejection`); deterministic ones with a one-hot Q for each child (then this is
`sequential`). Out: a path and one more token with the target's distribution.
"""

from outdraft.core.method import RuleMethod, arxiv
from outdraft.verify.shared.case import NoRuleOptions
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.siblings import judge_siblings

METHOD = RuleMethod(
    name="multi_draft",
    summary="rejection sampling over siblings that were drawn without replacement",
    build=lambda options: PerDraft(judge_siblings),
    options=NoRuleOptions,
    paper=arxiv(
        "2402.14160", "Recursive Speculative Decoding: Accelerating LLM Inference via Sampling Without Replacement"
    ),
    judges=("chain", "tree"),
    prefers_drawn=True,
)
