"""Draft on while one more token is worth more than it costs, by calibrated confidences and measured seconds.

    chance of a path    s = product of calibration(confidence) over its tokens
    one more token      brings s m tokens (m: mean acceptance of a judged token), and takes d seconds
    end of the path     s < theta = r d / m,   r tokens a second at present

A path that brings fewer tokens a second than the rounds do anyway makes them slower: the rule of Leviathan, Kalman and
Matias, 2022 (https://arxiv.org/abs/2211.17192), for a chance that differs from token to token. The decision for a token
only settles whether the next one is drawn; no drawn token is dropped for its value. Data in: sequences and events; data
out: one budget each. All sequences share the map and the costs, since they speak of the drafter.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import ArmDepth, MeasuredCosts
from outdraft.control.shared.reliability import Reliability
from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range

_RANGE = (1e-3, 0.95)  # of theta: drafting must be able to come back, and to end
_KEEP = 0.98  # of a round in the present tokens a second, each round


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 20  # how many tokens are drafted along the longest path, at most
    # a path ends below this chance of acceptance; none takes the chance at which measured time says that drafting
    # stops to pay
    theta: float | None = None
    start: float = 0.3  # the chance that is used until enough time has been measured
    memory: int = 2000  # after how many judged tokens a token counts only 1/e in the calibration
    every: int = 8  # how many rounds lie between two fits of the calibration

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "theta", "start", least=_RANGE[0], most=_RANGE[1])
        check_range(self, "memory", least=16)
        check_range(self, "every", least=1)


class CalibratedPolicy:
    """One map and one theta for all."""

    def __init__(self, options: CalibratedOptions, arm: Arm) -> None:
        self._options = options
        self.reliability = Reliability(options.memory)
        self.calibration = self.reliability.fit()
        self.theta = options.start if options.theta is None else options.theta
        self._costs = MeasuredCosts([arm])
        self._tokens = self._seconds = 0.0
        self._num_rounds = 0

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """Deep, as long as the path is likely enough."""
        deepest = self._options.num_speculative_tokens
        return [Budget(depth=allowed(seq, deepest), survival=self.theta, calibration=self.calibration) for seq in seqs]

    def update(self, events: Seq[StepEvent]) -> None:
        """Enter the judged tokens and the seconds; now and then fit anew."""
        for event in events:
            for i, sure in enumerate(event.confidences):
                self.reliability.add(sure, i < event.num_accepted)
        seconds = self._costs.add(events, {event.seq_id: ArmDepth(0, event.draft_depth) for event in events})
        if not any(event.num_certain for event in events):
            self._tokens = self._tokens * _KEEP + sum(len(event.tokens) for event in events)
            self._seconds = self._seconds * _KEEP + seconds
        self._num_rounds += 1
        if self._num_rounds % self._options.every == 0:
            self.calibration = self.reliability.fit()
            if self._options.theta is None:
                self._choose_theta(len(events))

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._costs.forget(seq.id)

    def _choose_theta(self, count: int) -> None:
        drafts, passes, deep = self._costs.drafts[0], self._costs.passes, max(2, self._options.num_speculative_tokens)
        if not (self._seconds and drafts.is_measured and passes.is_measured):
            return
        whole = drafts(deep, count) - drafts(1, count) + passes(count * (1 + deep)) - passes(count * 2)
        one_more = max(0.0, whole) / (deep - 1) / count
        theta = self._tokens / self._seconds * one_more / self.reliability.mean
        self.theta = min(max(theta, _RANGE[0]), _RANGE[1])


METHOD = PolicyMethod(
    name="calibrated",
    summary="draft while a path's calibrated chance of acceptance pays for one more token",
    build=lambda options, arms: CalibratedPolicy(options, arms[0]),
    options=CalibratedOptions,
    paper=arxiv("1706.04599", "On calibration of modern neural networks"),
)
