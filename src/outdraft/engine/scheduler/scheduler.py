"""Who runs in the next pass, with how many rows, within the memory that there is.

    waiting --join--> running: reads its prompt, then decodes --over-->
       ^                 |
       +---- gives its memory back (the last in order, when the others have no room) and is read again later

It asks memory (`core/room.py`) and a clock, and knows no part of the engine; so a recorded trace can be run through it
in simulated time. Continuous batching: Yu et al., "Orca", 2022, https://www.usenix.org/conference/osdi22/presentation/yu.
Chunks of prompts beside decoding rows: Agrawal et al., "Sarathi-Serve", 2024, https://arxiv.org/abs/2403.02310.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from outdraft.core.cache import PAGE
from outdraft.core.errors import BusyError
from outdraft.core.room import Room
from outdraft.core.sequence import CHUNK, Sequence
from outdraft.engine.scheduler.pace import Pace
from outdraft.engine.scheduler.queue import Queue
from outdraft.engine.scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One pass. Each sequence's `max_chunk` and `drafts` say what it may bring."""

    seqs: tuple[Sequence, ...] = ()
    preempted: tuple[Sequence, ...] = ()  # they give back their memory before, and wait
    num_decoding: int = 0
    num_prompt_rows: int = 0


class Scheduler:
    """Every unfinished sequence is in `waiting` or in `running`. `clock`: seconds, from any zero."""

    def __init__(self, settings: SchedulerSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.waiting = Queue()
        self.running: list[Sequence] = []
        self.num_preempted = 0  # times that somebody gave back its memory
        self._clock = clock
        self._pace = Pace(settings.prompt_share)
        self._ends: dict[int, float] = {}  # of sequences with a deadline

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
        """The first who waits, if there is a seat for it and room for its prompt; the running ones get a page each."""
        if not len(self.waiting) or len(self.running) >= self.settings.max_num_seqs:
            return None
        seq = self.waiting.first()
        if not self.running or room.capacity is None:
            return seq
        return seq if room.wanted(seq) + self._promised(room) <= room.free else None

    def _promised(self, room: Room) -> int:
        """Pages that those who run will have: for their whole prompts, and one page more for each."""
        return sum(room.missing(one, len(one.tokens) - one.num_cached + PAGE) for one in self.running)

    def _num_joining(self, room: Room) -> int:
        """How many of those who wait will join before the next pass: as `next_to_join` lets them, one after another."""
        seats = self.settings.max_num_seqs - len(self.running)
        first = list(islice(self.waiting, max(0, seats)))
        if room.capacity is None:
            return len(first)
        promised, free = self._promised(room), room.free
        for num_joining, seq in enumerate(first):
            wanted = room.wanted(seq)
            if wanted + promised > free and (self.running or num_joining):  # alone each of them fits
                return num_joining
            promised += wanted + 1
        return len(first)

    def join(self, seq: Sequence) -> None:
        """A waiting sequence begins to run."""
        self.waiting.take(seq)
        self.running.append(seq)

    def put_back(self, seq: Sequence) -> None:
        """It gave back its memory, and waits at its place."""
        self.running.remove(seq)
        self.waiting.put(seq)
        self.num_preempted += 1

    def drop(self, seq: Sequence) -> bool:
        """It is over; true if it ran."""
        self.waiting.take(seq)
        self.waiting.forget(seq)
        self._ends.pop(seq.id, None)
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

    def choose(self, room: Room) -> Turn:
        """The next pass. It is empty where nobody runs."""
        ordered = sorted(self.running, key=self.waiting.rank)
        decoding = [seq for seq in ordered if seq.prefilled]
        reading = self._chunks([seq for seq in ordered if not seq.prefilled], len(decoding), room)
        chosen = [*decoding, *reading] if room.mixes or not reading else reading
        preempted = self._make_room(chosen, room)
        seqs = [seq for seq in chosen if not any(seq is one for one in preempted)]
        return Turn(
            seqs=tuple(seqs), preempted=tuple(preempted), num_decoding=sum(seq.prefilled for seq in seqs),
            num_prompt_rows=sum(_num_read(seq) for seq in seqs if not seq.prefilled),
        )  # fmt: skip

    def ran(self, turn: Turn, seconds: float) -> None:
        """Learn from the pass of this turn, which took so many seconds."""
        self._pace.saw(turn.num_decoding, turn.num_prompt_rows, seconds)

    def _chunks(self, reading: list[Sequence], num_decoding: int, room: Room) -> list[Sequence]:
        """Who reads in this pass. The first in order reads first; where rows mix, others share what it leaves."""
        if not reading:
            return []
        self._pace.expect(num_decoding, len(reading))
        if not room.mixes:  # in chunks of fixed size, alone, so that a prompt has the same bits in any company
            return reading[:1] if not num_decoding or self._pace.prompts_are_due else []
        most = self.settings.max_num_batched_tokens
        rows = self._pace.rows(num_decoding, most) if num_decoding else most
        chosen = []
        for seq in reading:
            if rows <= 0:
                break
            both = seq.num_unread and seq.beside is not None and seq.beside.num_unread
            seq.max_chunk = max(1, min(rows // 2 if both else rows, CHUNK))
            rows -= _num_read(seq)
            chosen.append(seq)
        return chosen

    def _make_room(self, chosen: list[Sequence], room: Room) -> list[Sequence]:
        """Who must give back its memory so that the others of the pass have theirs; and who may draft beyond it."""
        if room.capacity is None:
            return []
        preempted: list[Sequence] = []
        free = room.free
        needs = {seq.id: room.missing(seq, _num_rows(seq)) for seq in chosen}
        for last in reversed(sorted(self.running, key=self.waiting.rank)):
            if sum(needs.values()) <= free or len(self.running) - len(preempted) == 1:  # alone each of them fits
                break
            preempted.append(last)
            needs.pop(last.id, None)
            free += room.held(last)
        spare = free - sum(needs.values())
        for seq in chosen:
            more = room.missing(seq, PAGE) - needs[seq.id] if seq.id in needs and seq.prefilled else 0
            seq.drafts = more <= spare
            spare -= more if seq.drafts else 0
        return preempted


def _num_rows(seq: Sequence) -> int:
    """Rows that it brings at least: a prompt's chunk, and the pending token where that is reached."""
    return min(seq.num_unread, seq.max_chunk) + seq.reaches(seq.max_chunk)


def _num_read(seq: Sequence) -> int:
    """The same, and what is read beside it."""
    return _num_rows(seq) + (0 if seq.beside is None else min(seq.beside.num_unread, seq.max_chunk))
