"""Stop drafting after a token of which the drafter is unsure: its probability is below h. The token itself is kept.

Hugging Face's `assistant_confidence_threshold` (h = 0.4); Kangaroo (Liu et al., 2024, https://arxiv.org/abs/2404.18911)
stops at 0.6, SWIFT (Xia et al., 2024, https://arxiv.org/abs/2410.06916) at 0.8. Keeping the unsure token is what makes
it exact: whether a drawn token is kept must not depend on its own value. Data in: sequences; data out: one budget each.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.shared.budgets import SameBudget
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Arm
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 20  # how many tokens are drafted along the longest path, at most
    threshold: float = 0.4  # drafting ends after a token less probable than this (h)

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "threshold", least=0, most=1)


def build(options: ThresholdOptions, arms: Seq[Arm]) -> SameBudget:
    """The drafter's own confidence decides."""
    return SameBudget(options.num_speculative_tokens, others={"confidence": options.threshold})


METHOD = PolicyMethod(
    name="threshold",
    summary="guess until the drafter is less sure than a threshold",
    build=build,
    options=ThresholdOptions,
    paper=arxiv("2404.18911", "Kangaroo: lossless self-speculative decoding via double early exiting"),
)
