"""Learning beside a service, in simulated time: the requests of a trace one after the other, as if they were served.

    request --> accepted by the draft that serves now, and by the first one: a point of the curve
            --> the learner, which makes a step whenever so much is fresh
            --> held out: the candidate's gate, which all earlier ones that are held have met; passed: it serves

A candidate stays until it is decided, or until twice as much has been learned: so a few tries are enough, and each is
another test. The learner keeps up by definition: a step costs no time here. Its pace is reported beside the curve.
"""

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from time import perf_counter

from outdraft.adapt.gate import Gate, GateOptions
from outdraft.options.ranges import check_range
from outdraft.training.live import LiveDraft, ServedRequest, Weights

_TOGETHER = 16  # requests of one pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One request of the curve: accepted tokens a round."""

    domain: str
    first: float  # by the draft that served at the beginning
    serving: float
    version: int


@dataclass(slots=True, kw_only=True)
class LiveReplay:
    """One run. `first`: tokens learned before a candidate; `latest`: held-out requests that are kept to judge by."""

    live: LiveDraft
    gate: GateOptions
    first: int = 4096
    latest: int = 100
    version: int = 0
    tries: int = 0
    verdicts: list[str] = field(default_factory=list)
    seconds: float = 0.0  # that steps took
    _begun: Weights = field(init=False)
    _held: deque[ServedRequest] = field(init=False)
    _candidate: tuple[Weights, Gate] | None = field(init=False, default=None)
    _due: int = field(init=False)  # tokens learned, at which the next candidate is taken

    def __post_init__(self) -> None:
        check_range(self, "first", "latest", least=1)
        self._begun, self._held, self._due = self.live.serving, deque(maxlen=self.latest), self.first

    def run(self, requests: Seq[ServedRequest], *, batch: int = 8) -> Iterator[Point]:
        """A point for each request. `batch`: so many are judged in one pass, by the draft that serves as it begins."""
        for start in range(0, len(requests), batch):
            some = requests[start : start + batch]
            first, serving = self.live.judge(some, (self._begun, self.live.serving))
            for one, a, b in zip(some, first, serving, strict=True):
                yield Point(domain=one.domain, first=a, serving=b, version=self.version)
            for one in some:
                self._take(one)
        if self._candidate is not None:
            self._end(self._candidate[1])

    def _take(self, one: ServedRequest) -> None:
        if self.live.add(one):
            self._held.append(one)
            if self._candidate is not None:
                self._judge(*self._candidate, [one])
        began = perf_counter()
        while self.live.num_waiting >= self.live.settings.step_tokens * (1 - self.live.settings.replay):
            self.live.learn()
        self.seconds += perf_counter() - began
        if self.live.num_tokens >= self._due:
            if self._candidate is not None:
                self._end(self._candidate[1])
            self.tries, self._due = self.tries + 1, 2 * self.live.num_tokens
            self._candidate = self.live.candidate(), Gate(self.gate, self.live.settings.depth, self.tries)
            self._judge(*self._candidate, list(self._held))

    def _judge(self, weights: Weights, gate: Gate, requests: Seq[ServedRequest]) -> None:
        """The candidate meets these; the draft that serves on the same positions."""
        for start in range(0, len(requests), _TOGETHER):
            some = requests[start : start + _TOGETHER]
            old, new = self.live.judge(some, (self.live.serving, weights))
            for one, a, b in zip(some, old, new, strict=True):
                if gate.outcome == "undecided":
                    gate.add(one.domain, a, b)
        if gate.outcome == "undecided":
            return
        self._end(gate)
        self._due = self.live.num_tokens + self.first
        if gate.outcome == "passed":
            self.version, self.live.serving = self.version + 1, weights
        else:
            self.live.go_back()

    def _end(self, gate: Gate) -> None:
        self.verdicts.append(f"candidate {gate.tries}: {gate.verdict.reason}")
        self._candidate = None
