"""A depth that follows its sequence's last rounds: shorter where whole guesses fail, longer where most is accepted.

Over a window of rounds,

    share of rounds in which nothing was accepted   above `too_many_lost`   -> one token less
    mean share of a guess that was accepted         above `enough_kept`     -> one token more

and after a change the window must show something new for `pause` rounds (hysteresis). Data in: sequences and events;
data out: one budget each.
"""

from collections import deque
from dataclasses import dataclass, field

from outdraft.control.shared.budgets import BudgetByState, allowed
from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 8  # how many tokens are drafted along the longest path, at most
    least: int = 3  # how many tokens a guess has at least
    start: int = 5  # how many tokens the first guess of a sequence has
    window: int = 16  # how many of the last rounds are looked at
    # a guess gets one token less if in more than this share of the rounds nothing was accepted
    too_many_lost: float = 0.4
    enough_kept: float = 0.8  # a guess gets one token more if more than this share of the drafted tokens was accepted
    pause: int = 4  # how many rounds pass after a change before the next one

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "least", "start", "window", least=1, most=MOST_NODES)
        check_range(self, "too_many_lost", "enough_kept", least=0, most=1)
        check_range(self, "pause", least=0)


@dataclass(slots=True)
class _Window:
    depth: int
    kept: deque[float] = field(default_factory=deque)  # share of each guess that was accepted
    since_change: int = 0


class HistoryPolicy(BudgetByState[HistoryOptions, _Window]):
    """A window for each sequence."""

    def _new(self) -> _Window:
        return _Window(self._options.start, deque(maxlen=self._options.window))

    def _budget(self, seq: Sequence, state: _Window) -> Budget:
        return Budget(depth=allowed(seq, min(state.depth, self._options.num_speculative_tokens)))

    def _learn(self, state: _Window, event: StepEvent) -> _Window:
        """Enter the guess, and step once where the window says so."""
        if not event.draft_depth:
            return state
        options = self._options
        state.kept.append(event.num_accepted / event.draft_depth)
        state.since_change += 1
        count = len(state.kept)
        if count < options.window or state.since_change <= options.pause:
            return state
        change = 0
        if sum(share == 0 for share in state.kept) / count > options.too_many_lost:
            change = -1
        elif sum(state.kept) / count > options.enough_kept:
            change = 1
        depth = min(max(state.depth + change, options.least), options.num_speculative_tokens)
        if depth != state.depth:
            state.depth, state.since_change = depth, 0
        return state


METHOD = PolicyMethod(
    name="history",
    summary="a depth that follows a window of the last rounds, with hysteresis",
    build=lambda options, arms: HistoryPolicy(options),
    options=HistoryOptions,
)
