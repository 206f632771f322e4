"""An engine that computes nothing: its passes do what was recorded, and a clock goes on by what each would take.

A request writes as many tokens as it did, in rounds of as many nodes and tokens as it had, whatever runs beside it.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from random import Random

from outdraft.bench.replay.costs import LearnedCosts, work_of
from outdraft.bench.replay.pauses import Pauses
from outdraft.bench.replay.trace import TracedRequest
from outdraft.control.shared.budgets import SameBudget
from outdraft.core.cache import PAGE
from outdraft.core.decisions import Decision, Decisions
from outdraft.core.draft import chain
from outdraft.core.events import StepEvent
from outdraft.core.packing import PackedDrafts
from outdraft.core.room import Unbounded
from outdraft.core.sequence import Sequence
from outdraft.core.target import TargetOutput
from outdraft.decode.fit import fit
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.engine.loop import Engine
from outdraft.engine.scheduler.scheduler import Pass, SchedulerSettings
from outdraft.verify.auto import Auto


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the replay runs on. `num_pages`: of the key/value cache; None: any number. Others: see `core/room.py`."""

    costs: LearnedCosts
    pauses: Pauses
    mixes: bool = True
    slices: int = 1
    num_pages: int | None = None


class Replaying(Engine):
    """`asked`: what each sequence does, by id. `now`: seconds since the trace began. `seed`: of the machine's noise."""

    def __init__(self, machine: Machine, scheduling: SchedulerSettings, seed: int) -> None:
        self.asked: dict[int, TracedRequest] = {}
        self.now = 0.0
        self.pages = Pages(machine, self)
        self._machine, self._random = machine, Random(seed)
        self._turns: dict[int, int] = {}  # rounds that a sequence has had
        parts = Parts(target=self.pages, drafter=NoDrafter(), verifier=Auto(), policy=SameBudget(0), room=self.pages)
        super().__init__(parts, scheduling=scheduling, clock=lambda: self.now)

    def _pass(self, turn: Pass) -> tuple[Decisions, list[StepEvent]]:
        decisions = Decisions(each=tuple(fit(turn.seqs, [self._decide(seq) for seq in turn.seqs], self.pages)))
        rows = [_rows(seq, one) for seq, one in zip(turn.seqs, decisions.each, strict=True)]
        if not turn.num_layers:
            self.now += self._machine.costs.seconds(work_of(rows), self._random)
        elif not self._slice(turn.seqs[0].id, turn.num_layers, rows):
            return decisions, []
        return decisions, [self._emit(seq, *own[:2]) for seq, own in zip(turn.seqs, rows, strict=True)]

    def _decide(self, seq: Sequence) -> Decision:
        num_nodes = self._round(seq)[0] if seq.prefilled and seq.turn.drafts else 1
        return Decision(seq_id=seq.id, start=seq.num_cached, turn=seq.turn, draft=chain([1] * num_nodes))

    def _slice(self, number: int, num_layers: int, rows: Seq[Seq[int]]) -> bool:
        """So many layers of the sequence's chunk; whether it is over."""
        if (chunk := self.pages.opened.get(number)) is None:
            seconds = self._machine.costs.seconds(work_of(rows), self._random)
            chunk = self.pages.opened[number] = Chunk(sum(rows[0][:2]), seconds, self._machine.slices)
        count = min(num_layers, chunk.left)
        chunk.left -= count
        self.now += chunk.seconds * count / self._machine.slices
        return not chunk.left

    def _emit(self, seq: Sequence, certain: int, num_nodes: int) -> StepEvent:
        count = 0
        if num_nodes:
            most = min(self._round(seq)[1], num_nodes)
            self._turns[seq.id] = self._turns.get(seq.id, 0) + 1
            while count < most and seq.finish_reason is None:
                seq.extend(1)
                count += 1
        seq.num_cached += certain + count
        self.pages.opened.pop(seq.id, None)
        return StepEvent(
            seq_id=seq.id,
            tokens=(1,) * count,
            finish_reason=seq.finish_reason,
            num_certain=certain,
            num_nodes=num_nodes,
        )

    def _round(self, seq: Sequence) -> tuple[int, int]:
        rounds, turn = self.asked[seq.id].rounds or [(1, 1)], self._turns.get(seq.id, 0)
        if turn >= len(rounds) > 1:  # it may write more than it did: as it went on, the first round aside
            turn = 1 + (turn - 1) % (len(rounds) - 1)
        return rounds[min(turn, len(rounds) - 1)]


@dataclass(slots=True)
class Chunk:
    """Of a prompt whose pass is under way in slices. `seconds`: of all of it."""

    num_rows: int
    seconds: float
    left: int  # layers


class Pages(Unbounded):
    """`Target` and its `Room`: the pages of every running sequence are counted, and nothing is in them."""

    vocab_size, max_len = 2, 2**30

    def __init__(self, machine: Machine, engine: Replaying) -> None:
        super().__init__(mixes=machine.mixes, slices=machine.slices)
        self.opened: dict[int, Chunk] = {}
        self._engine, self._num = engine, machine.num_pages or 0
        self.capacity = None if machine.num_pages is None else machine.num_pages * PAGE

    def begin(self, seq: Sequence) -> int:
        return min(self._engine.asked[seq.id].cached or 0, len(seq.tokens) - 1)

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        raise NotImplementedError  # no pass is computed

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Pages are counted, and no row is kept in them."""

    def end(self, seq: Sequence) -> None:
        self.opened.pop(seq.id, None)

    @property
    def free(self) -> int:  # type: ignore[override]  # a number that stands still there
        return self._num - sum(self.held(seq) for seq in self._engine.running)

    def wanted(self, seq: Sequence) -> int:
        return _pages(len(seq.tokens))

    def missing(self, seq: Sequence, num_rows: int) -> int:
        return _pages(seq.num_cached + num_rows) - _pages(seq.num_cached)

    def held(self, seq: Sequence) -> int:
        chunk = self.opened.get(seq.id)
        return _pages(seq.num_cached + (0 if chunk is None else chunk.num_rows))


def _rows(seq: Sequence, one: Decision) -> tuple[int, int, int]:
    """Of its prompt, of its draft, and those that the cache holds."""
    certain = min(seq.num_unread, one.turn.max_chunk)
    return certain, one.draft.num_nodes * seq.reaches(one.turn.max_chunk), one.start


def _pages(rows: int) -> int:
    return -(-rows // PAGE)
