"""A confidence threshold that tunes itself, so that a wanted share of the drafted tokens is accepted.

Zhang et al., "Draft & Verify: lossless large language model acceleration via self-speculative decoding", 2023,
https://arxiv.org/abs/2309.08168. After each round, with m the share accepted of what was drafted,

    r <- b1 r + (1 - b1) m
    h <- b2 h + (1 - b2) h'      h' = h + e if r < wanted;  h if the guess was as deep as allowed;  h - e otherwise

Data in: sequences and events; data out: one budget each. Every sequence tunes its own threshold.
"""

from dataclasses import dataclass

from outdraft.control.shared.budgets import BudgetByState, allowed
from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Budget
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


@dataclass(slots=True)
class _Tuning:
    threshold: float  # h
    share: float = 0.0  # r
    depth: int = 0  # how deep its last guess was allowed to be


class SelfTuningPolicy(BudgetByState[SelfTuningOptions, _Tuning]):
    """Threshold and smoothed share of each sequence."""

    def _new(self) -> _Tuning:
        return _Tuning(self._options.threshold)

    def _budget(self, seq: Sequence, state: _Tuning) -> Budget:
        """As deep as allowed, until less sure than the threshold of the moment."""
        state.depth = allowed(seq, self._options.num_speculative_tokens)
        return Budget(depth=state.depth, confidence=state.threshold)

    def _learn(self, state: _Tuning, event: StepEvent) -> _Tuning:
        """Move the threshold towards the wanted share."""
        options = self._options
        if not event.draft_depth:
            return state
        accepted = min(event.num_accepted / event.draft_depth, 1.0)
        state.share = options.keep_share * state.share + (1 - options.keep_share) * accepted
        aim = state.threshold
        if state.share < options.wanted:
            aim += options.step
        elif event.draft_depth < state.depth:
            aim -= options.step
        threshold = options.keep_threshold * state.threshold + (1 - options.keep_threshold) * aim
        state.threshold = min(max(threshold, 0.0), 1.0)
        return state


METHOD = PolicyMethod(
    name="self_tuning",
    summary="a confidence threshold that holds the share of accepted tokens near a target",
    build=lambda options, arms: SelfTuningPolicy(options),
    options=SelfTuningOptions,
    paper=arxiv(
        "2309.08168", "Draft & Verify: lossless large language model acceleration via self-speculative decoding"
    ),
)
