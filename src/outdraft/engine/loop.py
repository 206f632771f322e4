"""The engine's loop: admit requests, run steps, retire sequences. It uses the four parts only by their contracts.

Sequences join whenever there is room and leave when they end; who runs in a pass is the scheduler's to say
(`engine/scheduler`). Where rows are exact, or guarded, no greedy or seeded text depends on who else is there.
"""

import logging
from collections.abc import Callable
from itertools import count
from time import perf_counter

from outdraft.core.decisions import Decisions
from outdraft.core.events import StepEvent
from outdraft.core.one_process import OneProcess
from outdraft.core.policy import spared_by
from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.core.sequence import Sequence
from outdraft.core.watch import Watches
from outdraft.decode.apart import Isolated, fail
from outdraft.decode.parts import Parts
from outdraft.decode.sliced import Slicing
from outdraft.decode.step import decide, step
from outdraft.engine.composition import Composition
from outdraft.engine.requests.longest import most_held
from outdraft.engine.requests.prepare import make_sequence, settled_by
from outdraft.engine.scheduler.queue import Queue
from outdraft.engine.scheduler.scheduler import Pass, Scheduler, SchedulerSettings
from outdraft.options.errors import BusyError
from outdraft.options.foreign import anything_but_an_interrupt

Idle = Callable[[Callable[[], bool]], bool]  # (whether a request waits) -> whether there is more to do
_log = logging.getLogger(__name__)


class Engine(OneProcess):
    """The one loop. One thread owns it (`engine/callers/thread.py`); only `prepare` may be called from any thread.

    `variant` names the target's rounding. `isolates`: what raises ends the request that it belongs to, whose last event
    has the error (`decode/apart.py`); else it is raised, which is what a test of the parts wants. `clock`: seconds,
    for deadlines and for the scheduler's pace.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        eos_token_ids: frozenset[int] = frozenset(),
        scheduling: SchedulerSettings | None = None,
        variant: str = "",
        isolates: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.isolates = isolates
        self.variant, self.eos_token_ids = variant, eos_token_ids
        self.scheduler = Scheduler(scheduling or SchedulerSettings(), clock)
        self.clock = clock
        self.watch, self._slicing = Watches(), Slicing()
        self.idle: Idle | None = None  # a slice of what is done while no request runs (`between_steps.py`)
        self.composition = Composition(eos_token_ids)
        self.parts = parts
        self._ids = count()

    @property
    def parts(self) -> Parts:
        """What a step is made of, as it was given. Raises `CapabilityError` while none are held."""
        return self.composition.given

    @parts.setter
    def parts(self, parts: Parts) -> None:
        self.composition.hold(parts, isolates=self.isolates)

    @property
    def lossless(self) -> bool:
        """Whether the rule keeps the target's distribution."""
        return self.composition.terms.rule.lossless

    @property
    def waiting(self) -> Queue:
        """Requests that hold no memory."""
        return self.scheduler.waiting

    @property
    def running(self) -> list[Sequence]:
        """Requests that are being read or decoded."""
        return self.scheduler.running

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.scheduler.running or len(self.scheduler.waiting))

    def add(self, request: Request, find_stop: Callable[[int], bool] | None = None) -> Sequence:
        """`prepare` a request and `enqueue` it."""
        seq = self.prepare(request, find_stop)
        self.enqueue(seq)
        return seq

    def prepare(
        self, request: Request, find_stop: Callable[[int], bool] | None = None, *, asked_at: float | None = None
    ) -> Sequence:
        """Check a request; nothing is queued. `find_stop` gets each emitted token: does the text end with it?

        `asked_at`: seconds by the engine's clock from which its timeout counts; None: from now on.
        Raises `RequestError` before any work is done: empty prompt, prompt too long, ids outside the vocabulary.
        """
        asked_at = self.clock() if asked_at is None else asked_at
        return make_sequence(
            request, self.composition.terms, seq_id=next(self._ids), asked_at=asked_at, find_stop=find_stop
        )

    def enqueue(self, *seqs: Sequence) -> None:
        """They join when there is room. Raises `BusyError` where too many wait already, and takes none of them."""
        try:
            for seq in seqs:
                self.scheduler.add(seq, Unbounded() if self.composition.is_empty else self.composition.given.room)
        except BusyError:
            for seq in seqs:
                self.scheduler.drop(seq)
            for watch in self.watch.each:
                for seq in seqs:
                    watch.refused(seq, self.clock())
            raise
        self.composition.welcome(seqs)
        for watch in self.watch.each:
            for seq in seqs:
                watch.asked(seq, self.clock())

    def step(self) -> list[StepEvent]:
        """One pass, over whom the scheduler chose: rounds of those who decode, and chunks of prompts."""
        late = self.scheduler.expired()
        events = [self._end_late(seq) for seq in late] if late else []
        if len(self.scheduler.waiting):
            events += self._admit_waiting()
        if not self.scheduler.running:
            return events
        turn = self.scheduler.choose(self.composition.used.room)
        for seq in turn.preempted:
            self._give_back(seq)
        if not turn.seqs:
            return events
        began = self.clock()
        decisions, made = self._pass(turn)
        now = self.clock()
        self.scheduler.ran(turn, now - began, is_over=bool(made))
        for watch in self.watch.each:
            watch.passed(decisions, made, now, now - began)
        for seq in turn.seqs:
            if seq.finish_reason is not None:
                self._retire(seq)
        return events + made

    def _pass(self, turn: Pass) -> tuple[Decisions, list[StepEvent]]:
        """A whole pass, one event for each sequence; or some layers of a prompt's chunk (`decode/sliced.py`)."""
        parts, apart = self.composition.used, Isolated() if self.isolates else None
        decisions = decide(turn.seqs, parts)
        if not turn.num_layers:
            return decisions, step(turn.seqs, parts, apart, decisions)
        return decisions, self._slicing.run(turn.seqs[0], turn.num_layers, parts, apart, decisions)

    def abandon(self) -> None:
        """A step broke in an unforeseen way: drop every request, whatever else breaks on the way."""
        for seq in [*self.waiting, *self.running]:
            try:
                self._retire(seq)
            except BaseException as error:
                _log.error("a request could not be cleared away", exc_info=error)

    def admits(self) -> bool:
        """Whether the next request may join now; `ElasticEngine` may want to change its weights first."""
        return True

    def cancel(self, seq: Sequence) -> None:
        """Drop a request wherever it is; it keeps what it has written."""
        seq.finish_reason = seq.finish_reason or "cancelled"
        self._retire(seq)

    def _end_late(self, seq: Sequence) -> StepEvent:
        """Its time is over; it ends with what it has written."""
        seq.finish_reason = "timeout"
        self._retire(seq)
        return StepEvent(seq_id=seq.id, finish_reason="timeout", variant=seq.variant or self.variant)

    def _admit_waiting(self) -> list[StepEvent]:
        """Let join who may; an event for each that could not."""
        events = []
        while len(self.waiting):
            seq = self.waiting.first()
            try:
                if not self.admits() or (next_one := self.scheduler.next_to_join(self.composition.used.room)) is None:
                    break
                seq = next_one
                # `prepare` asked the same, but while weights change there is no memory to ask about, or another
                room = self.composition.used.room
                if room.capacity is not None:
                    most = most_held(seq.request, self.composition.terms.max_len, room.capacity, cuts=room.cuts)
                    seq.max_len = min(seq.max_len, most)
                self._admit(seq)
            except anything_but_an_interrupt() as error:
                if not self.isolates:
                    raise
                events.append(fail(seq, error))
                self._retire(seq)
        return events

    def _admit(self, seq: Sequence) -> None:
        parts = self.composition.used
        seq.variant = self.variant
        seq.settled = settled_by(self.composition.terms, seq.request)  # other weights may hold others
        seq.num_cached = parts.target.begin(seq)
        if not seq.num_preempted:
            seq.num_taken_over = min(seq.num_cached, seq.prompt_len)
        if parts.guesses:
            seq.settled = seq.settled.without(spared_by(parts.policy, seq, self.scheduler.crowd))
            parts.drafter.begin([seq])
        self.scheduler.join(seq)

    def _give_back(self, seq: Sequence) -> None:
        """It waits, and its text is read again when there is room: nothing of it is held meanwhile."""
        self.scheduler.put_back(seq)
        self._let_end(seq)
        seq.num_cached = 0
        seq.num_preempted += 1

    def _retire(self, seq: Sequence) -> None:
        if self.scheduler.drop(seq):
            self._let_end(seq)
        self.composition.forget(seq)
        for watch in self.watch.each:
            watch.ended(seq, self.clock())

    def _let_end(self, seq: Sequence) -> None:
        if self._slicing.under_way is not None:
            self._slicing.forget(seq)
        if self.composition.used.guesses:
            self.composition.used.drafter.end([seq])
            self.composition.used.policy.end([seq])
        try:
            self.composition.used.target.end(seq)
        except anything_but_an_interrupt() as error:
            if not self.isolates:
                raise
            _log.error("the target could not forget a sequence", exc_info=error)
