"""Sample and match: draw the target's own token at each node; descend if a child is that token, else emit it.

Paper: Coupling without Communication and Drafter-Invariant Speculative Decoding, 2024,
https://arxiv.org/abs/2408.07978
In: any tree, p [M, V], coins keyed by absolute position. Out: plain decoding's text for the same seed, whatever was
drafted. A drafter that races on the same noise (`Sequence.coupled`) agrees with it as often as the two distributions
overlap lets it; sharing the noise is sound here because the guess cannot change what is emitted, only how soon.
"""

from outdraft.core.method import RuleMethod, arxiv
from outdraft.verify.shared.case import NoRuleOptions, follow_draws
from outdraft.verify.shared.per_draft import PerDraft

METHOD = RuleMethod(
    name="coupled",
    summary="the target's own keyed draw at each node: the same seed gives the same text with any drafter or none",
    build=lambda options: PerDraft(follow_draws, coupled=True),
    options=NoRuleOptions,
    paper=arxiv("2408.07978", "Coupling without Communication and Drafter-Invariant Speculative Decoding"),
    judges=("chain", "tree"),
    prefers_drawn=True,
)
