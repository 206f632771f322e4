"""Stop drafting after a token of which the drafter is unsure: its probability is below h. The token itself is kept.

Hugging Face's `assistant_confidence_threshold` (h = 0.4); Kangaroo (Liu et al., 2024, https://arxiv.org/abs/2404.18911)
stops at 0.6, SWIFT (Xia et al., 2024, https://arxiv.org/abs/2410.06916) at 0.8. Keeping the unsure token is what makes
it exact: whether a drawn token is kept must not depend on its own value. Data in: sequences; data out: one budget each.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.shared.limits import allowed
from outdraft.core.events import StepEvent
from outdraft.core.method import Paper, PolicyMethod
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
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


class ThresholdPolicy:
    """Stateless: the drafter's own confidence decides."""

    def __init__(self, options: ThresholdOptions) -> None:
        self._options = options

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """Deep, until the drafter is unsure."""
        deepest, threshold = self._options.num_speculative_tokens, self._options.threshold
        return [Budget(depth=allowed(seq, deepest), confidence=threshold) for seq in seqs]

    def update(self, events: Seq[StepEvent]) -> None:
        """What became of a guess does not change the next plan."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence."""


def build(options: ThresholdOptions, arms: Seq[Arm]) -> ThresholdPolicy:
    """It does not choose among the arms: the first is asked."""
    return ThresholdPolicy(options)


METHOD = PolicyMethod(
    name="threshold",
    summary="guess until the drafter is less sure than a threshold",
    build=build,
    options=ThresholdOptions,
    paper=Paper(
        title="Kangaroo: lossless self-speculative decoding via double early exiting",
        year=2024,
        link="https://arxiv.org/abs/2404.18911",
    ),
)
