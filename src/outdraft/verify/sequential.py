"""One candidate after the other: accept child x with p(x) over the mass not yet tried; none left: draw from that mass.

Paper: EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees, 2024, https://arxiv.org/abs/2406.16858
In: any tree that does not depend on the rule's coins, above all deterministic ones (look-up, best-first trees), where
no rule accepts more. q is not read. Out: a path and one more token with the target's distribution, given the draft,
whatever it is.
"""

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoRuleOptions
from outdraft.verify.shared.in_turn import judge_in_turn
from outdraft.verify.shared.per_draft import PerDraft


def judge(case: Case) -> Verdict:
    """One draw decides about all children of a node."""
    return judge_in_turn(case)


METHOD = RuleMethod(
    name="sequential",
    summary="tries deterministic candidates one by one with the target's own probabilities",
    build=lambda options: PerDraft(judge),
    options=NoRuleOptions,
    paper=arxiv("2406.16858", "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees"),
    judges=("chain", "tree"),
)
