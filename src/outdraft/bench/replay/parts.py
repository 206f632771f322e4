"""An engine's parts for a replay: they count rows and pages, and advance a clock by the time that each pass would take.

No network runs. Each request writes as many tokens as in the recording, in rounds of the recorded numbers of nodes and
accepted tokens, independent of the other requests. Data in: `Costs` and recorded requests; data out: a clock's times.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import torch

from outdraft.bench.replay.costs import LearnedCosts, Work
from outdraft.bench.replay.trace import TracedRequest
from outdraft.core.cache import PAGE
from outdraft.core.coins import Coins
from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen, Traits
from outdraft.core.events import StepEvent
from outdraft.core.packing import PackedDrafts
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetOutput
from outdraft.core.verdict import Verdict
from outdraft.options.errors import CacheFullError

_ANY = 2**30  # tokens of a context


@dataclass(slots=True)
class SimulatedClock:
    """Seconds since the trace began."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True, kw_only=True)
class SimulatedTarget:
    """`Target` and its `Room`: counts the rows of every sequence that has begun, and advances the clock."""

    clock: SimulatedClock
    costs: LearnedCosts
    random: Random
    asked: Mapping[int, TracedRequest]  # by sequence
    mixes: bool
    slices: int
    num_pages: int | None
    vocab_size: int = 2
    max_len: int = _ANY
    rows: dict[int, int] = field(default_factory=dict)
    opened: dict[int, int] = field(default_factory=dict)  # rows of the chunks whose slices are under way

    def begin(self, seq: Sequence) -> int:
        self.rows[seq.id] = min(self.asked[seq.id].cached, len(seq.tokens) - 1)
        return self.rows[seq.id]

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """Logits of zeros; the clock advances to the end of the pass."""
        self.clock.now += self._seconds(packed)
        return self._scored(packed)

    def start(self, packed: PackedDrafts, taps: Seq[int] = ()) -> "SimulatedSlices":
        """The same pass in slices, each of which takes its share of the time."""
        seconds = self._seconds(packed)
        self.opened |= {seq.id: count for seq, count in zip(packed.seqs, _row_counts(packed), strict=True)}
        return SimulatedSlices(self, packed, seconds)

    def _scored(self, packed: PackedDrafts) -> TargetOutput:
        return TargetOutput(logits=torch.zeros(packed.node_starts[-1], self.vocab_size))

    def _seconds(self, packed: PackedDrafts) -> float:
        counts = _row_counts(packed)
        missing = sum(self.missing(seq, n) for seq, n in zip(packed.seqs, counts, strict=True))
        if self.num_pages is not None and missing > self.free:
            raise CacheFullError(f"{missing} pages are missing, and {self.free} of {self.num_pages} are free")
        context = sum(n * (self.rows[seq.id] + n // 2) for seq, n in zip(packed.seqs, counts, strict=True))
        work = Work(
            num_decoding=sum(not certain for certain in packed.num_certain),
            num_nodes=packed.node_starts[-1],
            num_rows=sum(counts),
            context=context,
        )
        return self.costs.seconds(work, self.random)

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        self.rows[seq.id] += len(keep)
        self.opened.pop(seq.id, None)

    def end(self, seq: Sequence) -> None:
        del self.rows[seq.id]
        self.opened.pop(seq.id, None)

    @property
    def capacity(self) -> int | None:
        return None if self.num_pages is None else self.num_pages * PAGE

    @property
    def cuts(self) -> bool:
        return False

    @property
    def free(self) -> int:
        return (self.num_pages or 0) - sum(self._num_pages_of(one) for one in self.rows)

    def wanted(self, seq: Sequence) -> int:
        return _pages(len(seq.tokens))

    def awaits(self, seq: Sequence, reader: Sequence) -> bool:
        return False

    def missing(self, seq: Sequence, num_rows: int) -> int:
        return _pages(self.rows[seq.id] + num_rows) - _pages(self.rows[seq.id])

    def held(self, seq: Sequence) -> int:
        return self._num_pages_of(seq.id)

    def forget(self) -> None:
        """Nothing is kept."""

    def _num_pages_of(self, sequence: int) -> int:
        return _pages(self.rows[sequence] + self.opened.get(sequence, 0))


@dataclass(slots=True)
class SimulatedSlices:
    """`SlicedPass`. `seconds`: of the whole pass."""

    target: SimulatedTarget
    packed: PackedDrafts
    seconds: float
    num_run: int = 0

    def run(self, num_layers: int) -> TargetOutput | None:
        """The clock advances by the time of so many layers more."""
        count = min(num_layers, self.target.slices - self.num_run)
        self.num_run += count
        self.target.clock.now += self.seconds * count / self.target.slices
        return None if self.num_run < self.target.slices else self.target._scored(self.packed)


@dataclass(slots=True, kw_only=True)
class AsRecorded:
    """`Drafter` and `Verifier`: every round has as many nodes and keeps as many of them as in the recording."""

    asked: Mapping[int, TracedRequest]  # by sequence
    lossless: bool = True
    needs: Needs = field(default_factory=Needs)
    traits: Traits = field(default_factory=Traits)
    turns: dict[int, int] = field(default_factory=dict)  # rounds that a sequence has had

    def begin(self, seqs: Seq[Sequence]) -> None:
        """A sequence that begins anew continues with its next recorded round."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        return [
            chain([1] * (self._round(seq)[0] if budget.depth else 1)) for seq, budget in zip(seqs, budgets, strict=True)
        ]

    def observe(self, seen: Seq[Seen]) -> None:
        """There is nothing to learn."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Counts are kept: they are small, and a replay is short."""

    def couples(self, request: Request) -> bool:
        return False

    def __call__(self, packed: PackedDrafts, p: torch.Tensor, coins: Seq[Coins]) -> list[Verdict]:
        verdicts = []
        for seq, draft in zip(packed.seqs, packed.drafts, strict=True):
            if draft is not None:
                accepted = min(self._round(seq)[1], draft.num_nodes) - 1
                self.turns[seq.id] = self.turns.get(seq.id, 0) + 1
                verdicts.append(Verdict(tuple(range(1, 1 + accepted)), 1, accepted == draft.num_nodes - 1))
        return verdicts

    def _round(self, seq: Sequence) -> tuple[int, int]:
        rounds, turn = self.asked[seq.id].rounds or [(1, 1)], self.turns.get(seq.id, 0)
        if turn >= len(rounds) > 1:  # more tokens than were recorded: repeat its rounds, without the first
            turn = 1 + (turn - 1) % (len(rounds) - 1)
        return rounds[min(turn, len(rounds) - 1)]


class Always:
    """`Policy` without a limit: the drafter decides how much to guess."""

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        return [Budget(depth=_ANY)] * len(seqs)

    def update(self, events: Seq[StepEvent]) -> None: ...

    def end(self, seqs: Seq[Sequence]) -> None: ...


def _row_counts(packed: PackedDrafts) -> list[int]:
    """Rows of each sequence."""
    return [stop - start for start, stop in pairwise(packed.row_starts)]


def _pages(rows: int) -> int:
    return -(-rows // PAGE)
