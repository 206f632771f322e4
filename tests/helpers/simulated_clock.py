"""A simulated clock: compute from a run's events how long it would have taken, serially or overlapped.

    round     before: draft steps while the target waits | rows: of the pass | beside: draft steps during the pass
    serial    before + pass + beside
    overlapped    before + max(pass, beside)               two devices
                  before + max(read, compute + beside)     one device, which waits for a disk

The same rounds give both times, so a speed-up by overlap is a fact of the method and no accident of a machine.
`SimulatedClock` is the executor of an engine; it counts what the inner drafter and the target are asked.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass

from outdraft.core.draft import Draft, host_tree
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.decode.executor import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds, or any other unit."""

    draft_step: float
    compute: Callable[[int], float] = lambda rows: 1.0  # of a target pass by its rows
    read: float = 0.0  # of the weights from a disk, while layers that are there compute
    shared: bool = False  # target and draft compute on one device

    def pass_time(self, rows: int) -> float:
        """Of a pass with nothing beside it."""
        return max(self.read, self.compute(rows))


@dataclass(slots=True)
class Round:
    """One pass and the drafting around it."""

    before: int
    rows: int
    beside: int = 0

    def serial(self, costs: Costs) -> float:
        return (self.before + self.beside) * costs.draft_step + costs.pass_time(self.rows)

    def overlapped(self, costs: Costs) -> float:
        """Drafting beside the pass."""
        beside = self.beside * costs.draft_step
        if costs.shared:
            return self.before * costs.draft_step + max(costs.read, costs.compute(self.rows) + beside)
        return self.before * costs.draft_step + max(costs.pass_time(self.rows), beside)


class SimulatedClock:
    """An `Executor` whose passes take what `costs` says. Hand the inner drafter through `count_steps`."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.rounds: list[Round] = []
        self._before = 0
        self._is_beside = False

    @contextmanager
    def beside(self, work: Work | None) -> Iterator[None]:
        """The pass has no duration of its own; the work learns that it is over when its simulated time is."""
        yield
        if work is None:
            return
        self._is_beside = True
        try:
            work(self._is_over)
        finally:
            self._is_beside = False

    def see_pass(self, rows: int) -> None:
        """A pass of so many rows begins."""
        self.rounds.append(Round(self._before, rows))
        self._before = 0

    def step(self, count: int) -> None:
        """The draft has taken so many steps."""
        if self._is_beside:
            self.rounds[-1].beside += count
        else:
            self._before += count

    def serial_time(self) -> float:
        return sum(one.serial(self.costs) for one in self.rounds)

    def overlapped_time(self) -> float:
        return sum(one.overlapped(self.costs) for one in self.rounds)

    def _is_over(self) -> bool:
        now = self.rounds[-1]
        return now.beside * self.costs.draft_step >= self.costs.pass_time(now.rows)


class CountedSteps:
    """An inner drafter, whose every level of a guess is a draft step (a batch takes its steps together)."""

    def __init__(self, inner: Drafter, clock: SimulatedClock) -> None:
        self.needs: Needs = inner.needs
        self.traits = Traits(rewinds=True, inner=(inner,))
        self._inner = inner
        self._clock = clock

    def begin(self, seqs: Seq[Sequence]) -> None:
        self._inner.begin(seqs)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """As the inner one, on the clock."""
        drafts = self._inner.propose(seqs, budgets)
        self._clock.step(max((max(host_tree(draft).depths) for draft in drafts), default=0))
        return drafts

    def observe(self, seen: Seq[Seen]) -> None:
        self._inner.observe(seen)

    def end(self, seqs: Seq[Sequence]) -> None:
        self._inner.end(seqs)
