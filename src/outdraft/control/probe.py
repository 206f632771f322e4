"""A switch: no speculation while too little is accepted, and a few rounds of it now and then to see whether that holds.

TensorRT-LLM turns speculation off where acceptance falls below a threshold; here it is tried again every `every`
rounds. Acceptance is accepted / (accepted + rejections) over the last `window` rounds, which does not depend on the
depth. Data in: sequences and events; data out: one budget each, with a switch for every sequence.
"""

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outdraft.control.shared.limits import allowed
from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod
from outdraft.core.policy import Arm, Budget
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


class ProbePolicy:
    """A switch for each sequence."""

    def __init__(self, options: ProbeOptions) -> None:
        self._options = options
        self._switches: dict[int, _Switch] = {}

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The depth, or nothing while the switch is off."""
        budgets = []
        for seq in seqs:
            switch = self._switches.get(seq.id)
            if switch is None:
                options = self._options
                switch = self._switches[seq.id] = _Switch(deque(maxlen=options.window), needed=options.window)
            depth = 0 if switch.plain else self._options.num_speculative_tokens
            budgets.append(Budget(depth=allowed(seq, depth)))
        return budgets

    def update(self, events: Seq[StepEvent]) -> None:
        """Judge what was accepted, or count down to the next trial."""
        for event in events:
            switch = self._switches.get(event.seq_id)
            if switch is None or not event.tokens:
                continue
            if switch.plain:
                switch.plain -= 1
            elif event.draft_depth:
                switch.last.append((event.num_accepted, event.rejected))
                self._judge(switch)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._switches.pop(seq.id, None)

    def _judge(self, switch: _Switch) -> None:
        if len(switch.last) < switch.needed:
            return
        accepted = sum(count for count, _ in switch.last)
        rejected = sum(was for _, was in switch.last)
        if accepted < self._options.least * (accepted + rejected):
            switch.last.clear()
            switch.plain = self._options.every
            switch.needed = min(self._options.trial, self._options.window)


def build(options: ProbeOptions, arms: Seq[Arm]) -> ProbePolicy:
    """It does not choose among the arms: the first is asked."""
    return ProbePolicy(options)


METHOD = PolicyMethod(
    name="probe",
    summary="off while too little is accepted, tried again every so many rounds",
    build=build,
    options=ProbeOptions,
)
