"""A confidence threshold that tunes itself, so that a wanted share of the drafted tokens is accepted.

Zhang et al., "Draft & Verify: lossless large language model acceleration via self-speculative decoding", 2023,
https://arxiv.org/abs/2309.08168. After each round, with m the share accepted of what was drafted,

    r <- b1 r + (1 - b1) m
    h <- b2 h + (1 - b2) h'      h' = h + e if r < wanted;  h if the guess was as deep as allowed;  h - e otherwise

Data in: sequences and events; data out: one budget each. Every sequence tunes its own threshold.
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
class SelfTuningOptions(PolicyOptions):
    """The paper's settings. Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 8  # how many tokens are drafted along the longest path, at most
    # the threshold at the start (h): a token less probable ends the guess; the paper takes 0.8 greedy and 0.5 sampled
    threshold: float = 0.8
    wanted: float = 0.9  # the share of drafted tokens that is to be accepted; the threshold moves towards it
    step: float = 0.01  # how far the threshold's aim moves in a round (e)
    keep_share: float = 0.5  # how much of the old value the smoothed share of accepted tokens keeps in a round (b1)
    keep_threshold: float = 0.9  # how much of the old value the smoothed threshold keeps in a round (b2)

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "threshold", "wanted", "step", "keep_share", "keep_threshold", least=0, most=1)


class SelfTuningPolicy:
    """Threshold and smoothed share of each sequence."""

    def __init__(self, options: SelfTuningOptions) -> None:
        self._options = options
        self._states: dict[int, tuple[float, float]] = {}  # sequence -> h, r
        self._depths: dict[int, int] = {}  # how deep its last guess was allowed to be

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """As deep as allowed, until less sure than the threshold of the moment."""
        start = (self._options.threshold, 0.0)
        self._depths.update((seq.id, allowed(seq, self._options.num_speculative_tokens)) for seq in seqs)
        return [
            Budget(depth=self._depths[seq.id], confidence=self._states.setdefault(seq.id, start)[0]) for seq in seqs
        ]

    def update(self, events: Seq[StepEvent]) -> None:
        """Move each threshold towards the wanted share."""
        for event in events:
            if event.seq_id in self._states and event.draft_depth:
                self._states[event.seq_id] = self._tune(*self._states[event.seq_id], event)

    def end(self, seqs: Seq[Sequence]) -> None:
        """Forget the thresholds."""
        for seq in seqs:
            self._states.pop(seq.id, None)
            self._depths.pop(seq.id, None)

    def _tune(self, threshold: float, share: float, event: StepEvent) -> tuple[float, float]:
        options = self._options
        accepted = min(event.num_accepted / event.draft_depth, 1.0)
        share = options.keep_share * share + (1 - options.keep_share) * accepted
        aim = threshold
        if share < options.wanted:
            aim += options.step
        elif event.draft_depth < self._depths[event.seq_id]:
            aim -= options.step
        threshold = options.keep_threshold * threshold + (1 - options.keep_threshold) * aim
        return min(max(threshold, 0.0), 1.0), share


def build(options: SelfTuningOptions, arms: Seq[Arm]) -> SelfTuningPolicy:
    """It does not choose among the arms: the first is asked."""
    return SelfTuningPolicy(options)


METHOD = PolicyMethod(
    name="self_tuning",
    summary="a confidence threshold that holds the share of accepted tokens near a target",
    build=build,
    options=SelfTuningOptions,
    paper=Paper(
        title="Draft & Verify: lossless large language model acceleration via self-speculative decoding",
        year=2023,
        link="https://arxiv.org/abs/2309.08168",
    ),
)
