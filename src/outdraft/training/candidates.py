"""Candidates of a draft that learns, one after the other, and the gate that lets one serve, or takes it back.

    requests -> watched?    the version before it, on the same requests: better after all -> rolled back
             -> candidate?  its gate, which the requests that are held out have met; passed: it serves
             -> held out, or learned from, a step whenever so much is fresh; again, while there is nothing else to do

Requests that come together are judged in one pass; a draft that begins to serve meets the next ones. A candidate is
judged by every request that comes after it was taken, before any learns from it, unless the same prompt was learned
from: prompts that come again prove memory alone. It stays until it is decided, or until half as much again has been
learned: so a few tries are enough, and each is another test. The watch is a gate with the roles changed: what served
before must be shown to accept more.
"""

from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from math import isfinite
from time import perf_counter
from typing import Literal

from outdraft.adapt.gate import Gate, GateOptions
from outdraft.options.ranges import check_range
from outdraft.training.corpus import LEAST
from outdraft.training.live import DraftWeights, LiveDraft
from outdraft.training.served import ServedRequest

_TOGETHER = 16  # requests of one pass
Turn = Literal["tried", "passed", "failed", "undecided", "watched", "kept", "rolled back"]


@dataclass(slots=True, kw_only=True)
class Candidates:
    """`first`: tokens learned before a candidate; `latest`: held-out requests that are kept to judge by.

    `tell` hears each turn: its name, the weights that serve from then on, the number of the try or of the watch, and
    the gate's reason. `tries` and `watches` count those of the draft before this run, too.
    """

    live: LiveDraft
    gate: GateOptions
    tell: Callable[[Turn, DraftWeights, int, str], None]
    first: int = 4096
    latest: int = 100
    tries: int = 0
    watches: int = 0
    seconds: float = 0.0  # that steps took
    held: deque[ServedRequest] = field(init=False)
    _rest: deque[ServedRequest] = field(init=False, default_factory=deque)  # that came with the one being learned from
    _candidate: tuple[DraftWeights, Gate] | None = field(init=False, default=None)
    _before: tuple[DraftWeights, Gate] | None = field(init=False, default=None)  # what served, beside what serves
    _due: int = field(init=False)  # tokens learned, at which the next candidate is taken

    def __post_init__(self) -> None:
        check_range(self, "first", "latest", least=1)
        self.held, self._due = deque(maxlen=self.latest), self.live.num_tokens + self.first

    def take(self, some: Seq[ServedRequest]) -> None:
        """The next requests, all judged before any is learned from."""
        some = [one for one in some if len(one.answer) >= LEAST]
        self._meet(some)
        self._rest.extend(some)
        while self._rest:
            if self.live.add(one := self._rest.popleft()):
                self.held.append(one)
            while self.live.num_waiting >= self.live.settings.step_tokens * self.live.fresh_share:
                self._learn()

    def rehearse(self) -> bool:
        """A step over earlier requests alone; False where all were learned from as often as they should be."""
        epochs = self.live.settings.epochs
        if epochs <= 1 or self.live.num_tokens >= epochs * self.live.num_served:
            return False
        self._learn()
        return True

    def _learn(self) -> None:
        began = perf_counter()
        self.live.learn()
        self.seconds += perf_counter() - began
        if self.live.num_tokens >= self._due:
            self.end()  # and what was learned goes on
            self.tries, self._due = self.tries + 1, self._next()
            self.tell("tried", self.live.serving, self.tries, "")  # before it is judged: no try goes uncounted
            self._candidate = self.live.candidate(), Gate(self.gate, self.live.settings.depth, self.tries)
            self._examine([*self.held, *self._rest])

    def recall(self, learned: Iterable[ServedRequest]) -> None:
        """Requests that an earlier run has seen: held out, or to be learned from again in their share."""
        for one in learned:
            if one.number < self.live.settings.held_out:
                self.held.append(one)
            else:
                self.live.remember(one)

    def replace(self, serving: DraftWeights, before: DraftWeights | None) -> None:
        """Other weights serve, which no gate let in; they are watched beside those before them."""
        self._candidate, self.live.serving = None, serving
        self.live.go_back()
        self._due = self.live.num_tokens + self.first
        self.watch(before)

    def watch(self, before: DraftWeights | None) -> None:
        """Compare what serves with these from now on; None: with nothing."""
        self._before = None
        if before is not None:
            self.watches += 1
            self.tell("watched", self.live.serving, self.watches, "")
            self._before = before, Gate(self.gate, self.live.settings.depth, self.watches)

    def end(self) -> None:
        """No request comes any more, or another candidate does."""
        if self._candidate is not None:
            gate, self._candidate = self._candidate[1], None
            self.tell("undecided", self.live.serving, gate.tries, gate.verdict.reason)

    def _meet(self, some: Seq[ServedRequest]) -> None:
        """Compare what served before, and the candidate, with what serves."""
        serving, compared = self.live.serving, [one for one in (self._before, self._candidate) if one is not None]
        if self._before is None:
            some = [one for one in some if not self.live.knows(one)]
        if not compared or not some:
            return
        now, *others = self.live.judge(some, [serving, *(weights for weights, _ in compared)])
        for i, one in enumerate(some):
            if self._before is not None:
                self._watch(one, now[i], others[0][i])
            if self._candidate is not None and not self.live.knows(one):
                self._try(one, now[i], others[-1][i])
            if self.live.serving is not serving:
                return

    def _examine(self, some: Seq[ServedRequest]) -> None:
        """The candidate meets these, in pieces, until it is decided."""
        for start in range(0, len(some), _TOGETHER):
            if self._candidate is None:
                return
            part = [one for one in some[start : start + _TOGETHER] if not self.live.knows(one)]
            now, new = self.live.judge(part, [self.live.serving, self._candidate[0]])
            for told in zip(part, now, new, strict=True):
                if self._candidate is not None:
                    self._try(*told)

    def _try(self, one: ServedRequest, now: float, new: float) -> None:
        """The candidate's accepted tokens a round on a request, beside those of what serves."""
        assert self._candidate is not None
        weights, gate = self._candidate
        gate.add(one.domain, *map(_sound, (now, new)))
        if gate.outcome == "undecided":
            return
        self._candidate, self._due = None, self._next()
        if gate.outcome == "failed":
            self.live.go_back()
            self._due = self.live.num_tokens + self.first
            self.tell("failed", self.live.serving, gate.tries, gate.verdict.reason)
            return
        before, self.live.serving = self.live.serving, weights
        self.tell("passed", weights, gate.tries, gate.verdict.reason)
        self.watch(before)

    def _watch(self, one: ServedRequest, now: float, earlier: float) -> None:
        """Does what served before accept more than what serves?"""
        assert self._before is not None
        before, gate = self._before
        gate.add(one.domain, *map(_sound, (now, earlier)))
        if gate.outcome == "passed":
            self.replace(before, None)
            self.tell("rolled back", before, gate.tries, gate.verdict.reason)
        elif gate.outcome == "failed":
            self._before = None
            self.tell("kept", self.live.serving, gate.tries, gate.verdict.reason)

    def _next(self) -> int:
        """Tokens learned at the next candidate, which has learned half as much again."""
        now = self.live.num_tokens
        return now + max(self.first, now // 2)


def _sound(accepted: float) -> float:
    """DraftWeights that broke accept nothing."""
    return accepted if isfinite(accepted) else 0.0
