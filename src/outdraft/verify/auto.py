"""The default: for each sequence of a batch, the exact rule that accepts most for what it is given.

    greedy request            greedy        no coins, the same text
    seed-coupled sequence     coupled       the same seed gives the same text with any drafter
    deterministic guess       sequential    nothing accepts more when q is one-hot
    sampled chain             block
    sampled tree              traversal

In: any batch, also a mixed one. Out: the chosen rule's verdicts; nothing is decided here but which rule.
"""

from outdraft.core.method import RuleMethod
from outdraft.core.verdict import Verdict
from outdraft.verify import block, sequential, traversal
from outdraft.verify.shared.case import Case, NoRuleOptions, follow_draws
from outdraft.verify.shared.per_draft import PerDraft


class Auto(PerDraft):
    """Choose by request first, then by draft."""

    def __init__(self) -> None:
        super().__init__(_judge_sampled, coupled="seeded", follows_best=True)


def _judge_sampled(case: Case) -> Verdict:
    if case.seq.coupled:
        return follow_draws(case)
    if case.q is None:
        return sequential.judge(case)
    return block.judge(case) if case.tree.is_chain else traversal.judge(case)


METHOD = RuleMethod(
    name="auto",
    summary="the best exact rule for each request and draft (the default)",
    build=lambda options: Auto(),
    options=NoRuleOptions,
    judges=("chain", "tree"),
    prefers_drawn=True,
)
