"""Learning beside a service, in simulated time: the requests of a trace one after the other, as if they were served.

    request --> accepted by the draft that serves now, and by the first one: a point of the curve
            --> the learner, which makes a step whenever so much is fresh
            --> every so many held-out requests: a candidate before the gate, on the latest ones; passed: it serves

The learner keeps up by definition: a step costs no time here. Its pace on this machine is reported beside the curve.
"""

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from time import perf_counter

from outdraft.adapt.gate import Gate, GateOptions
from outdraft.training.live import LiveDraft, Served, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One request of the curve: accepted tokens a round."""

    domain: str
    first: float  # by the draft that served at the beginning
    serving: float
    version: int


@dataclass(slots=True, kw_only=True)
class Replay:
    """One run. `every`: held-out requests between two candidates; `latest`: so many of them judge a candidate."""

    live: LiveDraft
    gate: GateOptions
    every: int = 10
    latest: int = 100
    version: int = 0
    tries: int = 0
    verdicts: list[str] = field(default_factory=list)
    seconds: float = 0.0  # that steps took
    _first: Weights = field(init=False)
    _held: deque[Served] = field(init=False)
    _since: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._first, self._held = self.live.serving, deque(maxlen=self.latest)

    def run(self, requests: Seq[Served], *, batch: int = 8) -> Iterator[Point]:
        """A point for each request. `batch`: so many are judged in one pass, by the draft that serves as it begins."""
        for start in range(0, len(requests), batch):
            some = requests[start : start + batch]
            first, serving = self.live.judge(some, (self._first, self.live.serving))
            for one, a, b in zip(some, first, serving, strict=True):
                yield Point(domain=one.domain, first=a, serving=b, version=self.version)
            for one in some:
                self._take(one)

    def _take(self, one: Served) -> None:
        if self.live.add(one):
            self._held.append(one)
            self._since += 1
        began = perf_counter()
        while self.live.num_waiting >= self.live.settings.step_tokens * (1 - self.live.settings.replay):
            self.live.learn()
        self.seconds += perf_counter() - began
        if self._since >= self.every and self.live.num_steps:
            self._since = 0
            self._try()

    def _try(self) -> None:
        """What has been learned by now, on the latest held-out requests."""
        self.tries += 1
        gate = Gate(self.gate, self.live.settings.depth, self.tries)
        held = list(self._held)
        for start in range(0, len(held), 16):
            some = held[start : start + 16]
            old, new = self.live.judge(some, (self.live.serving, self.live.weights()))
            for one, a, b in zip(some, old, new, strict=True):
                if gate.outcome == "undecided":
                    gate.add(one.domain, a, b)
        self.verdicts.append(gate.verdict.reason)
        if gate.outcome == "passed":
            self.version += 1
            self.live.serving = self.live.weights()
        elif gate.outcome == "failed":
            self.live.go_back()
