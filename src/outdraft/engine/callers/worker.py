"""The engine's own thread: it takes messages out of its inbox and makes steps until there is nothing to do.

However the thread ends, every caller gets an answer: those with an outbox, those in the inbox, and later ones.
"""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any
from weakref import ref

from outdraft.core.sequence import Sequence
from outdraft.decode.apart import fail
from outdraft.engine.callers.call import Leave, Outbox
from outdraft.engine.loop import Engine
from outdraft.kernels.threads import torch_threads
from outdraft.options.errors import CapabilityError, DecodingError, OutdraftError

LAST_STEP = 5.0  # seconds that a fork, or the end of the process, waits for a step under way
STOPPED = "the engine's thread was stopped (by close(), or the process is ending): no request can be decoded any more"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Join:
    """New requests, all of one caller. `together`: the engine takes all of them or none, and reports it to streams."""

    outboxes: Seq[Outbox]
    num_threads: int  # that PyTorch may use for them
    together: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """Something to do between two steps. The answer is (result, None) or (None, error)."""

    work: Callable[[Engine], Any]
    answer: "SimpleQueue[tuple[Any, BaseException | None]]"


class Worker:
    """One started thread and the inbox that it reads; it knows the engine only while it has work."""

    def __init__(self, engine: Engine) -> None:
        self.inbox: SimpleQueue[Any] = SimpleQueue()  # None: stop
        self.is_busy = False  # the engine is at work, or has some left
        self.rests = True  # no idle work is done, until a message comes
        self.end: OutdraftError | None = None  # why the thread no longer reads the inbox
        self._ending = Lock()
        self._outboxes: dict[int, Outbox] = {}
        self.thread = Thread(target=self._run, args=(ref(engine),), name="outdraft-engine", daemon=True)
        self.thread.start()

    def send(self, message: Join | Ask) -> None:
        """It is answered in any case: by the thread, or here if that has ended."""
        with self._ending:
            self.inbox.put(message)
            if self.end is not None:
                self._refuse_all(self.end)

    def stop(self) -> None:
        """End the thread after the step under way; requests in it are refused."""
        self.inbox.put(None)
        self.thread.join(LAST_STEP)

    def _run(self, find: Callable[[], Engine | None]) -> None:
        end: OutdraftError = CapabilityError(STOPPED)
        try:
            self._serve(find)
        except BaseException as error:
            _log.error("the engine's thread broke", exc_info=error)
            self._clear(find())
            end = DecodingError(f"the engine's thread broke with {type(error).__name__}: ask again for another thread")
        with self._ending:
            self.end, self.is_busy = end, False
            self._refuse_all(end)

    @staticmethod
    def _clear(engine: Engine | None) -> None:
        """The next thread must not go on with texts reported to their callers as ended."""
        try:
            if engine is not None:
                engine.abandon()
        except BaseException as error:
            _log.error("the requests of a thread that broke could not be cleared away", exc_info=error)

    def _serve(self, find: Callable[[], Engine | None]) -> None:
        while (message := self._wait(find)) is not None:
            engine = find()
            if engine is None:
                return
            stop = self._begin(engine, message)
            del engine, message
            if stop:
                return

    def _wait(self, find: Callable[[], Engine | None]) -> Any:
        """The next message; until it comes, idle work, a slice at a time (`between_steps.py`)."""
        while not self.rests and self.inbox.empty() and (engine := find()) is not None:
            try:
                self.rests = engine.idle is None or not engine.idle(lambda: not self.inbox.empty())
            except BaseException as error:  # also a stranger's sys.exit()
                _log.error("work for idle time broke, and is not asked again", exc_info=error)
                engine.idle = None
            self._note(engine)
            del engine
        return self.inbox.get()

    def _note(self, engine: Engine) -> None:
        self.rests = self.rests or engine.idle is None
        self.is_busy = engine.has_work or not self.rests

    def _begin(self, engine: Engine, message: Any) -> bool:
        """Work on as many threads as the requests that begin it may have; true if the thread is to end."""
        if isinstance(message, Join):
            with torch_threads(message.num_threads):
                return self._work(engine, message)
        self._deliver(engine, message)
        return self._work(engine, Empty) if engine.has_work else False

    def _work(self, engine: Engine, message: Any) -> bool:
        """Take messages and make steps until there is nothing to do; true if the thread is to end."""
        while True:
            while message is not Empty:
                if message is None:
                    return True
                self._deliver(engine, message)
                message = _next(self.inbox)
            if not engine.has_work:
                self._note(engine)
                return False
            self._step(engine)
            message = _next(self.inbox)

    def _step(self, engine: Engine) -> None:
        try:
            events = engine.step()
        except BaseException as error:  # also a stranger's sys.exit(): it ends requests, and not the thread
            engine.abandon()
            events = [fail(outbox.seq, error, alone=False) for outbox in self._outboxes.values()]
        self._note(engine)  # before the events are posted: who has the last one may fork
        for event in events:
            if (outbox := self._outboxes.get(event.seq_id)) is not None:
                outbox.post(event)
                if event.finish_reason is not None:
                    del self._outboxes[event.seq_id]

    def _deliver(self, engine: Engine, message: Join | Leave | Ask) -> None:
        self.is_busy, self.rests = True, False
        match message:
            case Join():
                for outboxes in [message.outboxes] if message.together else [[one] for one in message.outboxes]:
                    self._join(engine, outboxes, told=message.together)
            case Leave():
                self._outboxes.pop(message.seq.id, None)
                _clear_away(engine, message.seq)
                self._note(engine)
            case Ask():
                answer: tuple[Any, BaseException | None]
                try:
                    answer = message.work(engine), None
                except BaseException as error:
                    answer = None, error
                self._note(engine)
                message.answer.put(answer)

    def _join(self, engine: Engine, outboxes: Seq[Outbox], *, told: bool) -> None:
        """All of these, or none."""
        try:
            engine.enqueue(*(outbox.seq for outbox in outboxes))
        except BaseException as error:  # too many wait, or who watches the engine broke
            for outbox in outboxes:
                outbox.post(fail(outbox.seq, error))
            for outbox in outboxes:  # after all are answered: this may break, too
                _clear_away(engine, outbox.seq)
        else:
            for outbox in outboxes:
                self._outboxes[outbox.seq.id] = outbox
                if told:
                    outbox.welcome()

    def _refuse_all(self, error: OutdraftError) -> None:
        """Answer every caller whom the thread has not answered, and now never will."""
        while (message := _next(self.inbox)) is not Empty:
            match message:
                case Join():
                    self._outboxes.update((outbox.seq.id, outbox) for outbox in message.outboxes)
                case Ask():
                    message.answer.put((None, error))
        for outbox in self._outboxes.values():
            outbox.fail(error)
        self._outboxes.clear()


def _clear_away(engine: Engine, seq: Sequence) -> None:
    try:
        engine.cancel(seq)
    except BaseException as error:
        _log.error("a request that was cancelled could not be cleared away", exc_info=error)


def _next(inbox: "SimpleQueue[Any]") -> Any:
    """Only one thread takes messages, so what is there stays there until it does."""
    return Empty if inbox.empty() else inbox.get()
