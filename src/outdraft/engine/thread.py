"""The thread that owns an engine. Callers, from threads or from asyncio, talk to it through messages only.

    callers          inbox                   engine's thread                    outboxes
    submit  ------>  Join, Leave, Ask  --->  what came in, a step, what ...  -->  events of each request

Nobody waits for anybody's step, and nobody gets a stranger's error. The thread begins with the first request and ends
with its `EngineThread`: while it has no work it knows the engine by a weak reference alone.

A forked process has none of its parent's threads. Where no request ran at the fork, the next one starts a thread anew;
where one did, nobody knows what the half of a step has left behind, and every request is refused.
"""

import asyncio
import atexit
import logging
import os
from collections.abc import Callable
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar
from weakref import WeakSet, finalize, ref

import torch

from outdraft.codecs.codec import Codec
from outdraft.core.errors import CapabilityError
from outdraft.core.request import Request
from outdraft.engine.call import Call, Leave, Outbox
from outdraft.engine.loop import Engine
from outdraft.engine.writer import Writer, find_stops
from outdraft.kernels.threads import torch_threads

T = TypeVar("T")
_log = logging.getLogger(__name__)
_LAST_STEP = 5.0  # seconds that the end of the process waits for a step under way
_FORKED = (
    "this process was forked while a request was being decoded, and what the engine was doing then is lost: make the "
    "LLM anew in this process, or fork when no request runs"
)


@dataclass(frozen=True, slots=True)
class Join:
    """New requests, all of one caller."""

    outboxes: Seq[Outbox]
    num_threads: int  # that PyTorch may use for them


@dataclass(frozen=True, slots=True)
class Ask:
    """Something to do between two steps. The answer is (result, None) or (None, error)."""

    work: Callable[[Engine], Any]
    answer: "SimpleQueue[tuple[Any, Exception | None]]"


class _Worker:
    """One started thread and the inbox that it reads."""

    def __init__(self, engine: Engine) -> None:
        self.inbox: SimpleQueue[Any] = SimpleQueue()  # None: stop
        self.is_busy = False
        self.thread = Thread(target=self._serve, args=(ref(engine),), name="outdraft-engine", daemon=True)
        self.thread.start()
        _workers.add(self)

    def stop(self) -> None:
        """End the thread after the step under way; requests in it are dropped."""
        self.inbox.put(None)
        self.thread.join(_LAST_STEP)

    def _serve(self, find: Callable[[], Engine | None]) -> None:
        while (message := self.inbox.get()) is not None:
            engine = find()
            if engine is None:
                return
            self.is_busy = True
            with torch_threads(message.num_threads if isinstance(message, Join) else torch.get_num_threads()):
                stop = _work(engine, self.inbox, message)
            self.is_busy = False
            del engine, message
            if stop:
                return


def _work(engine: Engine, inbox: "SimpleQueue[Any]", message: Any) -> bool:
    """Take messages and make steps until there is nothing to do; true if the thread is to end."""
    outboxes: dict[int, Outbox] = {}
    while True:
        while message is not Empty:
            if message is None:
                return True
            _deliver(engine, outboxes, message)
            message = _next(inbox)
        if not engine.has_work:
            return False
        try:
            events = engine.step()
        except Exception as error:
            events = engine.abandon(error)
        for event in events:
            if (outbox := outboxes.get(event.seq_id)) is not None:
                outbox.post(event)
                if event.finish_reason is not None:
                    del outboxes[event.seq_id]
        message = _next(inbox)


def _next(inbox: "SimpleQueue[Any]") -> Any:
    try:
        return inbox.get_nowait()
    except Empty:
        return Empty


def _deliver(engine: Engine, outboxes: dict[int, Outbox], message: Join | Leave | Ask) -> None:
    match message:
        case Join():
            for outbox in message.outboxes:
                outboxes[outbox.seq.id] = outbox
                engine.enqueue(outbox.seq)
        case Leave():
            outboxes.pop(message.seq.id, None)
            try:
                engine.cancel(message.seq)
            except Exception as error:
                _log.error("a request that was cancelled could not be cleared away", exc_info=error)
        case Ask():
            try:
                message.answer.put((message.work(engine), None))
            except Exception as error:
                message.answer.put((None, error))


class EngineThread:
    """An engine's only door. `native`: PyTorch has little to do beside the kernels, and keeps one thread."""

    def __init__(self, engine: Engine, codec: Codec | None, *, native: bool) -> None:
        self.engine = engine
        self._codec = codec
        self._native = native
        self._lock = Lock()
        self._worker: _Worker | None = None
        self._calls: WeakSet[Call] = WeakSet()
        self._is_lost = False
        _watch_process()
        _all.add(self)

    def submit(
        self, requests: Seq[Request], *, streams: bool = False, loop: asyncio.AbstractEventLoop | None = None
    ) -> list[Call]:
        """Queue them all; none, if one is refused. `streams`: events are wanted step by step."""
        seqs = [self.engine.prepare(request, find_stops(request, self._codec)) for request in requests]
        writers = [Writer(seq, self._codec, lossless=self.engine.lossless) for seq in seqs]
        inbox = self._start().inbox
        calls = [Call(writer, inbox, streams=streams, loop=loop) for writer in writers]
        self._calls.update(calls)
        inbox.put(Join([call.outbox for call in calls], 1 if self._native else torch.get_num_threads()))
        return calls

    def ask(self, work: Callable[[Engine], T]) -> T:
        """Have something done between two steps, and wait for it."""
        worker = self._start()
        if current_thread() is worker.thread:
            return work(self.engine)
        answer: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        worker.inbox.put(Ask(work, answer))
        result, error = answer.get()
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    @property
    def is_busy(self) -> bool:
        """Whether the thread has work."""
        return self._worker is not None and self._worker.is_busy

    def renew(self, *, is_lost: bool) -> None:
        """In a forked process: nothing is left of the thread, and nobody answers the calls under way."""
        self._lock, self._worker, self._is_lost = Lock(), None, self._is_lost or is_lost
        for call in list(self._calls):
            call.fail(CapabilityError(_FORKED))

    def _start(self) -> _Worker:
        if self._is_lost:
            raise CapabilityError(_FORKED)
        with self._lock:
            if self._worker is None:
                self._worker = _Worker(self.engine)
                finalize(self, self._worker.inbox.put, None).atexit = False
            return self._worker


_all: "WeakSet[EngineThread]" = WeakSet()  # of this process
_workers: "WeakSet[_Worker]" = WeakSet()  # a running thread holds its own, also when its `EngineThread` is gone


@cache
def _watch_process() -> None:
    """Once: threads are told of forks and of the process's end."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_renew_all)
    atexit.register(_stop_all)


def _renew_all() -> None:
    is_lost = any(one.is_busy for one in _all)
    for one in list(_all):
        one.renew(is_lost=is_lost)


def _stop_all() -> None:
    """A thread that is in native code when Python ends would abort the process."""
    for worker in list(_workers):
        with suppress(Exception):
            worker.stop()
