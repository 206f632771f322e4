"""Learning beside a service, in simulated time: the requests of a trace one after the other, as if they were served.

    request --> accepted by the draft that serves now, and by the first one: a point of the curve
            --> Candidates, as the learner of a service has them

The learner keeps up by definition: a step costs no time here. Its pace is reported beside the curve.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outdraft.adapt.gate import GateOptions
from outdraft.training.candidates import Candidates, Turn
from outdraft.training.live import DraftWeights, LiveDraft
from outdraft.training.served import ServedRequest


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
    turns: list[str] = field(default_factory=list)  # what became of each candidate
    candidates: Candidates = field(init=False)
    _begun: DraftWeights = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self.live.serving
        self.candidates = Candidates(
            live=self.live, gate=self.gate, tell=self._hear, first=self.first, latest=self.latest
        )

    def run(self, requests: Seq[ServedRequest], *, batch: int = 8) -> Iterator[Point]:
        """A point for each request. `batch`: so many are judged in one pass, by the draft that serves as it begins."""
        for start in range(0, len(requests), batch):
            some = requests[start : start + batch]
            first, serving = self.live.judge(some, (self._begun, self.live.serving))
            for one, a, b in zip(some, first, serving, strict=True):
                yield Point(domain=one.domain, first=a, serving=b, version=self.version)
            self.candidates.take(some)
            while self.candidates.rehearse():
                pass
        self.candidates.end()

    def _hear(self, turn: Turn, weights: DraftWeights, number: int, reason: str) -> None:
        if turn == "passed":
            self.version += 1
        if turn == "rolled back":
            self.version -= 1
        if reason:  # it was decided, or ended
            self.turns.append(f"candidate {number} {turn}: {reason}")
