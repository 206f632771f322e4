"""Who runs in the next pass, with how many rows, within the memory that there is.

    waiting --join--> running: reads its prompt, then decodes --over-->
       ^                 |
       +---- gives its memory back (the last in order, when the others have no room) and is read again later

It asks memory (`core/room.py`) and a clock, and knows no part of the engine; so a recorded trace can be run through it
in simulated time. Continuous batching: Yu et al., "Orca", 2022, https://www.usenix.org/conference/osdi22/presentation/yu.
Chunks of prompts beside decoding rows: Agrawal et al., "Sarathi-Serve", 2024, https://arxiv.org/abs/2403.02310.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from outdraft.core.room import Room
from outdraft.core.sequence import CHUNK, Sequence
from outdraft.engine.scheduler.memory import make_room, num_joining, promised
from outdraft.engine.scheduler.pace import Pace
from outdraft.engine.scheduler.queue import Queue
from outdraft.engine.scheduler.slices import Slices, comes_between, overtakes
from outdraft.options.errors import BusyError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Limits of what runs and waits. Raises `ConfigError` for a number out of range.

    `prompt_share`: while others decode, reading prompts takes about this share of the time.
    """

    max_num_seqs: int = 64  # requests that run together
    max_num_batched_tokens: int = 512  # rows of prompts in one pass
    max_num_waiting: int | None = None  # requests that wait; None: any number
    prompt_share: float = 0.22

    def __post_init__(self) -> None:
        check_range(self, "max_num_seqs", "max_num_batched_tokens", least=1)
        check_range(self, "max_num_waiting", least=0)
        check_range(self, "prompt_share", least=0.01, most=0.99, note="of the time while others decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass. Each sequence's `turn` says what it may bring."""

    seqs: tuple[Sequence, ...] = ()
    preempted: tuple[Sequence, ...] = ()  # they give back their memory before, and wait
    num_decoding: int = 0
    num_prompt_rows: int = 0
    num_layers: int = 0  # of the one sequence's chunk, which runs in slices (`decode/sliced.py`); 0: a whole pass


class Scheduler:
    """Every unfinished sequence is in `waiting` or in `running`. `clock`: seconds, from any zero."""

    def __init__(self, settings: SchedulerSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.waiting = Queue()
        self.running: list[Sequence] = []
        self.num_preempted = 0  # times that a request gave back its memory
        self._clock = clock
        self._pace = Pace(settings.prompt_share)
        self._slices = Slices()
        self._ends: dict[int, float] = {}  # of sequences with a deadline
        self._passed_over: set[int] = set()  # who had prompt left to read, and no rows when prompts were last read

    @property
    def crowd(self) -> int:
        """How many run together once those who wait have joined, as far as there are seats."""
        return min(len(self.running) + len(self.waiting), self.settings.max_num_seqs)

    def add(self, seq: Sequence, room: Room) -> None:
        """It waits. Raises `BusyError` where too many would, those not counted that join before the next pass."""
        self.waiting.put(seq)
        most = self.settings.max_num_waiting
        if most is not None and len(self.waiting) > most and len(self.waiting) - self._num_joining(room) > most:
            self.drop(seq)
            raise BusyError(
                f"{len(self.waiting)} requests are waiting, and max_num_waiting={most}: ask again later, or give more"
            )
        if (timeout := seq.request.timeout) is not None:
            self._ends[seq.id] = (self._clock() if seq.asked_at is None else seq.asked_at) + timeout

    def next_to_join(self, room: Room) -> Sequence | None:
        """The first who waits, if there is a seat for it and room for its prompt; the running ones get a page each.

        Those stand aside that will take over what one before them in order is reading, as the second text of a prompt.
        """
        if not len(self.waiting) or len(self.running) >= self.settings.max_num_seqs:
            return None
        reading = [one for one in self.running if one.num_unread and one.id not in self._passed_over]
        rank, some = self.waiting.rank, islice(self.waiting, self.settings.max_num_seqs)
        joins = (seq for seq in some if not any(rank(one) < rank(seq) and room.awaits(seq, one) for one in reading))
        seq = next(joins, None)
        if seq is None or not self.running or room.capacity is None:
            return seq
        return seq if room.wanted(seq) + promised(self.running, room) <= room.free else None

    def _num_joining(self, room: Room) -> int:
        """How many of those who wait will join before the next pass, or stand aside where they could."""
        seats = self.settings.max_num_seqs - len(self.running)
        return num_joining(list(islice(self.waiting, max(0, seats))), self.running, room)

    def join(self, seq: Sequence) -> None:
        """A waiting sequence begins to run."""
        self.waiting.take(seq)
        self.running.append(seq)

    def put_back(self, seq: Sequence) -> None:
        """It gave back its memory, and waits at its place."""
        self.running.remove(seq)
        self._forget_slices(seq)
        self.waiting.put(seq)
        self.num_preempted += 1

    def drop(self, seq: Sequence) -> bool:
        """It is over; true if it ran."""
        self.waiting.take(seq)
        self.waiting.forget(seq)
        self._ends.pop(seq.id, None)
        self._forget_slices(seq)
        runs = any(one is seq for one in self.running)
        if runs:
            self.running.remove(seq)
        return runs

    def expired(self) -> list[Sequence]:
        """Unfinished sequences whose timeout has passed."""
        if not self._ends:
            return []
        now = self._clock()
        return [seq for seq in (*self.waiting, *self.running) if self._ends.get(seq.id, now) < now]

    def choose(self, room: Room) -> Pass:
        """The next pass. It is empty where no request runs."""
        ordered = sorted(self.running, key=self.waiting.rank) if len(self.running) > 1 else self.running
        reading = [seq for seq in ordered if not seq.prefilled]
        if not reading and self._slices.reader is None:
            preempted = make_room(ordered, ordered, room) if room.capacity is not None else []
            gone = {seq.id for seq in preempted} if preempted else ()
            stay = [seq for seq in ordered if seq.id not in gone] if gone else ordered
            return Pass(seqs=tuple(stay), preempted=tuple(preempted), num_decoding=len(stay))
        decoding = [seq for seq in ordered if seq.prefilled]
        num_layers = None
        if decoding or self._slices.reader is not None:
            num_layers = self._slices.choose(reading, len(decoding), room, self._pace)
        reader = self._slices.reader
        if num_layers and reader is not None:
            chosen = [self._slices.begin(reader, room.slices)]
        else:
            if num_layers is not None:  # others read beside those who decode, between two slices
                reading = [seq for seq in reading if reader is not None and comes_between(seq, reader)]
            reading = self._chunks(reading, len(decoding), room)
            chosen = [*decoding, *reading] if room.mixes or not reading else reading
        preempted = make_room(chosen, ordered, room) if room.capacity is not None else []
        seqs = [seq for seq in chosen if not any(seq is one for one in preempted)]
        if read := {seq.id for seq in seqs if not seq.prefilled}:
            self._passed_over = {seq.id for seq in ordered if not seq.prefilled and seq.id not in read}
        return Pass(
            seqs=tuple(seqs),
            preempted=tuple(preempted),
            num_decoding=sum(seq.prefilled for seq in seqs),
            num_prompt_rows=sum(_num_read(seq) for seq in seqs if not seq.prefilled),
            num_layers=num_layers or 0,
        )

    def ran(self, turn: Pass, seconds: float, *, is_over: bool = True) -> None:
        """Learn from the pass of this turn, or from the slice of a pass that `is_over` or not; it took so long."""
        if turn.num_layers:
            self._slices.ran(turn.num_layers, turn.num_prompt_rows, seconds, is_over=is_over)
            if any(seq.prefilled for seq in self.running):
                self._pace.saw_slice(seconds)
        else:
            self._slices.were_last &= not turn.num_prompt_rows
            self._pace.saw(turn.num_decoding, turn.num_prompt_rows, seconds)

    def _forget_slices(self, seq: Sequence) -> None:
        if self._slices.reader is seq:
            self._slices.end()

    def _chunks(self, reading: list[Sequence], num_decoding: int, room: Room) -> list[Sequence]:
        """Who reads in this pass. The first in order reads first; where rows mix, others share what it leaves.

        Half of the rows are for prompts of which less is left, so that no request waits for all of a long one.
        """
        if not reading:
            return []
        most = self.settings.max_num_batched_tokens
        self._pace.expect(num_decoding, len(reading), sum(seq.num_to_read <= most for seq in reading))
        if not room.mixes:  # in chunks of fixed size, alone, so that a prompt has the same bits in any company
            return reading[:1] if not num_decoding or self._pace.prompts_are_due else []
        rows = self._pace.rows(num_decoding, most) if num_decoding else most
        shorter = sorted((seq for seq in reading[1:] if overtakes(seq, reading[0])), key=lambda seq: seq.num_to_read)
        chosen, left = _share_rows(shorter, rows // 2)
        rest = [seq for seq in reading if not any(seq is one for one in chosen)]
        others, _ = _share_rows(rest, rows - rows // 2 + left)
        return [*chosen, *others]


def _share_rows(reading: list[Sequence], rows: int) -> tuple[list[Sequence], int]:
    """Those who read with these rows, one after another; and how many rows they leave."""
    chosen = []
    for seq in reading:
        if rows <= 0:
            break
        both = seq.num_unread and seq.beside is not None and seq.beside.num_unread
        seq.turn = replace(seq.turn, max_chunk=max(1, min(rows // 2 if both else rows, CHUNK)))
        rows -= _num_read(seq)
        chosen.append(seq)
    return chosen, rows


def _num_read(seq: Sequence) -> int:
    """The same, and what is read beside it."""
    return seq.least_rows + (0 if seq.beside is None else min(seq.beside.num_unread, seq.turn.max_chunk))
