"""Choose the confidence threshold from judged tokens: the point of the ROC curve with the least weighted error.

Every judged token leaves a pair (the drafter's probability, accepted or not). With threshold h a token below it ends
the guess, so its costs are

    false positives   rejected tokens at or above h / all rejected       drafting went on for nothing
    false negatives   accepted tokens below h / all accepted             drafting stopped too early, three times as bad

and h is the confidence that makes fpr + 3 fnr least (dynamic speculation in Hugging Face transformers; Mamou et al.,
"Dynamic speculation lookahead accelerates speculative decoding of large language models", 2024,
https://arxiv.org/abs/2405.04304). Data in: sequences and events; data out: one budget each. All sequences share the
pairs, since they speak of the drafter.
"""

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.shared.budgets import allowed
from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range

_LEAST = 1e-6  # asked of the drafter even where no threshold helps, so that it goes on reporting how sure it is


@dataclass(frozen=True, slots=True, kw_only=True)
class RocOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 20  # how many tokens are drafted along the longest path, at most
    # a token less probable than this ends the guess, until accepted and rejected tokens have both been seen
    threshold: float = 0.4
    miss_weight: float = 3.0  # how much worse it is to stop too early than to draft on for nothing
    window: int = 512  # how many judged tokens are remembered
    every: int = 4  # how many rounds lie between two choices of the threshold

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "threshold", least=0, most=1)
        check_range(self, "miss_weight", least=0, most=1e6)
        check_range(self, "window", least=8)
        check_range(self, "every", least=1)


class RocPolicy:
    """One threshold for all sequences, moved to the best point of the ROC curve of the last tokens."""

    def __init__(self, options: RocOptions) -> None:
        self._options = options
        self.threshold = options.threshold
        self.pairs: deque[tuple[float, bool]] = deque(maxlen=options.window)
        self._num_rounds = 0

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """Deep, until less sure than the threshold of the moment."""
        deepest, threshold = self._options.num_speculative_tokens, max(self.threshold, _LEAST)
        return [Budget(depth=allowed(seq, deepest), confidence=threshold) for seq in seqs]

    def update(self, events: Seq[StepEvent]) -> None:
        """Enter the judged tokens; now and then choose anew."""
        for event in events:
            self.pairs.extend((sure, i < event.num_accepted) for i, sure in enumerate(event.confidences))
        self._num_rounds += 1
        if self._num_rounds % self._options.every == 0 and len(self.pairs) > 5:
            self.threshold = best_threshold(self.pairs, self._options.miss_weight, self.threshold)

    def end(self, seqs: Seq[Sequence]) -> None:
        """Remembers no sequence."""


def best_threshold(pairs: Seq[tuple[float, bool]], miss_weight: float, present: float) -> float:
    """The confidence h among `pairs` that makes fpr + miss_weight * fnr least; `present` where one kind is missing."""
    num_accepted = sum(accepted for _, accepted in pairs)
    num_rejected = len(pairs) - num_accepted
    if not num_accepted or not num_rejected:
        return present
    best, least = present, float("inf")
    below_accepted = below_rejected = 0
    before = -1.0
    for sure, accepted in sorted(pairs):
        if sure > before:  # what stands before it is below a threshold of `sure`
            cost = (num_rejected - below_rejected) / num_rejected + miss_weight * below_accepted / num_accepted
            if cost < least:
                best, least = sure, cost
            before = sure
        below_accepted += accepted
        below_rejected += not accepted
    return best


METHOD = PolicyMethod(
    name="roc",
    summary="a confidence threshold chosen from stored pairs of confidence and outcome",
    build=lambda options, arms: RocPolicy(options),
    options=RocOptions,
    paper=arxiv(
        "2405.04304", "Dynamic speculation lookahead accelerates speculative decoding of large language models"
    ),
)
