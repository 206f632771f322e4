"""The engine's loop: admit requests, run steps, retire sequences. It uses the four parts only by their contracts.

Sequences join whenever there is room and leave when they end; who runs in a pass is the scheduler's to say
(`engine/scheduler`). Where rows are exact, or guarded, no greedy or seeded text depends on who else is there.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from time import perf_counter

from outdraft.core.events import StepEvent
from outdraft.core.one_process import OneProcess
from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.core.sequence import Sequence
from outdraft.core.watch import Watches
from outdraft.decode.apart import fail
from outdraft.decode.asked import RulesByRequest
from outdraft.decode.guidance import guides
from outdraft.decode.step import Parts
from outdraft.decode.steps import Steps
from outdraft.decode.suspicion import Suspicion, shielded
from outdraft.engine.requests.checks import most_held
from outdraft.engine.requests.prepare import Terms, make_sequence
from outdraft.engine.requests.speculative import settle
from outdraft.engine.scheduler.queue import Queue
from outdraft.engine.scheduler.scheduler import Scheduler, Turn
from outdraft.engine.scheduler.settings import SchedulerSettings
from outdraft.options.errors import BusyError, CapabilityError
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.options.speculative import Held

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
        self._rules, self._suspicion = RulesByRequest(parts.verifier), Suspicion()
        self.parts = parts
        self.variant = variant
        self.eos_token_ids = eos_token_ids
        self.scheduler = Scheduler(scheduling or SchedulerSettings(), clock)
        self.clock = clock
        self.watch, self._steps = Watches(), Steps()
        self._ids = count()
        self._vocab_size, self._max_len = parts.target.vocab_size, parts.target.max_len

    @property
    def parts(self) -> Parts:
        """What a step is made of, as it was given. Raises `CapabilityError` while none are held."""
        if self._parts is None:
            raise CapabilityError(
                "no weights are held, because the last change of weights failed: the next request tries to load them"
            )
        return self._parts

    @parts.setter
    def parts(self, parts: Parts) -> None:
        self._parts: Parts | None = parts
        self._held = parts.held
        self._is_guided = guides(parts.target)
        used = replace(parts, verifier=self._rules)
        self._used = shielded(used, self._suspicion) if self.isolates else used

    def let_go(self) -> None:
        """Hold no parts, until others are given."""
        self._parts = None
        del self._used

    @property
    def lossless(self) -> bool:
        """Whether the rule keeps the target's distribution."""
        return self._rules.lossless

    @property
    def held(self) -> Held:
        """What requests may ask for by name."""
        return self._held

    def keeps(self, seq: Sequence) -> bool:
        """Whether the rule that judges this sequence keeps the target's distribution."""
        return self._rules.of(seq.settled.rule).lossless

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
        return bool(len(self.waiting) or self.running)

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
        parts = self._parts  # another thread may be changing it
        terms = Terms(
            vocab_size=self._vocab_size, max_len=self._max_len, ends=self.eos_token_ids, is_guided=self._is_guided,
            capacity=None if parts is None else parts.room.capacity, cuts=parts is not None and parts.room.cuts,
            held=self._held, rules=self._rules,
        )  # fmt: skip
        asked_at = self.clock() if asked_at is None else asked_at
        return make_sequence(request, terms, seq_id=next(self._ids), asked_at=asked_at, find_stop=find_stop)

    def enqueue(self, *seqs: Sequence) -> None:
        """They join when there is room. Raises `BusyError` where too many wait already, and takes none of them."""
        try:
            for seq in seqs:
                self.scheduler.add(seq, Unbounded() if self._parts is None else self._parts.room)
        except BusyError:
            for seq in seqs:
                self.scheduler.drop(seq)
                self.watch.refused(seq, self.clock())
            raise
        for seq in seqs:
            self.watch.asked(seq, self.clock())

    def step(self) -> list[StepEvent]:
        """One pass, over whom the scheduler chose: rounds of those who decode, and chunks of prompts."""
        events = self._end_late() + self._admit_waiting()
        turn = self.scheduler.choose(self._used.room) if self.running else Turn()
        for seq in turn.preempted:
            self._give_back(seq)
        if turn.seqs:
            began = self.clock()
            made = self._steps.run(turn.seqs, turn.num_layers, self._used, isolates=self.isolates)
            now = self.clock()
            self.scheduler.ran(turn, now - began, is_over=bool(made))
            events += made
            self.watch.passed(turn.seqs, made, now, now - began)
        for seq in (seq for seq in turn.seqs if seq.finish_reason is not None):
            self._retire(seq)
        return events

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

    def _end_late(self) -> list[StepEvent]:
        """End the requests whose time is over, with what they have written."""
        events = []
        for seq in self.scheduler.expired():
            seq.finish_reason = "timeout"
            self._retire(seq)
            variant = seq.variant or self.variant
            events.append(StepEvent(seq_id=seq.id, finish_reason="timeout", variant=variant))
        return events

    def _admit_waiting(self) -> list[StepEvent]:
        """Let join who may; an event for each that could not."""
        events = []
        while len(self.waiting):
            seq = self.waiting.first()
            try:
                if not self.admits() or (next_one := self.scheduler.next_to_join(self._used.room)) is None:
                    break
                seq = next_one
                # `prepare` asked the same, but while weights change there is no memory to ask about, or another
                room = self._used.room
                most = most_held(seq.request, self._max_len, room.capacity, cuts=room.cuts)
                seq.max_len = min(seq.max_len, most)
                self._admit(seq)
            except anything_but_an_interrupt() as error:
                if not self.isolates:
                    raise
                events.append(fail(seq, error))
                self._retire(seq)
        return events

    def _admit(self, seq: Sequence) -> None:
        seq.variant, seq.settled = self.variant, settle(seq.request, self._held)  # other weights may hold others
        seq.num_cached = self._used.target.begin(seq)
        seq.settled = seq.settled.without(self._used.spared(seq, self.scheduler.crowd))
        if not seq.num_preempted:
            seq.num_taken_over = min(seq.num_cached, seq.prompt_len)
        self._used.drafter.begin([seq])
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
        self.watch.ended(seq, self.clock())

    def _let_end(self, seq: Sequence) -> None:
        self._steps.forget(seq)
        self._used.drafter.end([seq])
        self._used.policy.end([seq])
        try:
            self._used.target.end(seq)
        except anything_but_an_interrupt() as error:
            if not self.isolates:
                raise
            _log.error("the target could not forget a sequence", exc_info=error)
