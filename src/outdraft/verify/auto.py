"""The default: for each sequence of a batch, the exact rule that accepts most for what it is given.

    greedy request            greedy        no coins, the same text
    seed-coupled sequence     coupled       the same seed gives the same text with any drafter
    deterministic guess       sequential    nothing accepts more when q is one-hot
    sampled chain             block
    sampled tree              traversal

In: any batch, also a mixed one. Out: the chosen rule's verdicts; nothing is decided here but which rule.
"""

from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.method import RuleMethod
from outdraft.core.packing import PackedDrafts
from outdraft.core.request import Request
from outdraft.core.verdict import Verdict
from outdraft.verify import block, greedy, sequential, traversal
from outdraft.verify.shared.case import Case, NoOptions, make_cases
from outdraft.verify.shared.own_draws import follow_draws


class Auto:
    """Choose by request first, then by draft."""

    lossless = True

    def couples(self, request: Request) -> bool:
        """A request that names a seed, and samples, is decoded by the coupled rule."""
        return request.params.seed is not None and not request.params.greedy

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """One verdict for each draft that is not None."""
        cases = make_cases(packed, p, coins)
        best = greedy.best_tokens(cases, p) if any(case.seq.request.params.greedy for case in cases) else []
        return [_judge(case, best) for case in cases]


def _judge(case: Case, best: list[int]) -> Verdict:
    if case.seq.request.params.greedy:
        return greedy.follow(case, best)
    if case.seq.coupled:
        return follow_draws(case)
    if case.q is None:
        return sequential.judge(case)
    return block.judge(case) if case.tree.is_chain else traversal.judge(case)


METHOD = RuleMethod(
    name="auto",
    summary="the best exact rule for each request and draft (the default)",
    build=lambda options: Auto(),
    options=NoOptions,
    judges=("chain", "tree"),
    prefers_drawn=True,
)
