"""A switch: no speculation while too little is accepted, and a few rounds of it now and then to see whether that holds.

TensorRT-LLM turns speculation off where acceptance falls below a threshold; here it is tried again every `every`
rounds. Acceptance is accepted / (accepted + rejections) over the last `window` rounds, which does not depend on the
depth. Data in: sequences and events; data out: one budget each, with a switch for every sequence.
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
class ProbeOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 5  # how many tokens are drafted while speculation is on
    least: float = 0.3  # speculation is turned off where accepted / (accepted + rejections) falls below this
    window: int = 32  # over how many of the last rounds with a guess acceptance is counted
    every: int = 256  # after how many plain rounds speculation is tried again
    trial: int = 8  # how many rounds such a trial has; then speculation stays on or ends by their acceptance

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "least", least=0, most=1)
        check_range(self, "window", "every", "trial", least=1)


@dataclass(slots=True)
class _Switch:
    last: deque[tuple[int, bool]] = field(default_factory=deque)  # accepted tokens, rejected
    plain: int = 0  # rounds left without a guess
    needed: int = 0  # rounds before it may be judged


class ProbePolicy(BudgetByState[ProbeOptions, _Switch]):
    """A switch for each sequence."""

    def _new(self) -> _Switch:
        return _Switch(deque(maxlen=self._options.window), needed=self._options.window)

    def _budget(self, seq: Sequence, state: _Switch) -> Budget:
        return Budget(depth=allowed(seq, 0 if state.plain else self._options.num_speculative_tokens))

    def _learn(self, state: _Switch, event: StepEvent) -> _Switch:
        """Judge what was accepted, or count down to the next trial."""
        if event.tokens and state.plain:
            state.plain -= 1
        elif event.tokens and event.draft_depth:
            state.last.append((event.num_accepted, event.rejected))
            self._judge(state)
        return state

    def _judge(self, switch: _Switch) -> None:
        if len(switch.last) < switch.needed:
            return
        accepted = sum(count for count, _ in switch.last)
        rejected = sum(was for _, was in switch.last)
        if accepted < self._options.least * (accepted + rejected):
            switch.last.clear()
            switch.plain = self._options.every
            switch.needed = min(self._options.trial, self._options.window)


METHOD = PolicyMethod(
    name="probe",
    summary="off while too little is accepted, tried again every so many rounds",
    build=lambda options, arms: ProbePolicy(options),
    options=ProbeOptions,
)
