"""Access to an engine from several callers. One thread owns the engine (`worker.py`); callers, in threads or
in asyncio, talk to it through messages only.

    callers          inbox                   engine's thread                    outboxes
    submit  ------>  Join, Leave, Ask  --->  what came in, a step, what ...  -->  events of each request

No caller waits for another's step, and none gets the error of another's request. The thread begins with the first
request and ends with its `EngineThread`: while it has no work it knows the engine by a weak reference alone. However
it ends, every waiting caller is answered, and the next request begins another thread.

A forked process has none of its parent's threads. Where no request ran at the fork, the next one starts a thread anew;
where one did, it is not known what the half of a step has left behind, and every request is refused.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from contextlib import suppress
from queue import Empty, SimpleQueue
from sys import maxsize
from threading import Lock, current_thread
from typing import Any, TypeVar
from weakref import WeakSet, finalize

from outdraft.codecs.codec import Codec
from outdraft.codecs.stops import StopTable, find_stops
from outdraft.core.one_process import OneProcess
from outdraft.core.request import Request
from outdraft.engine.callers.call import Call, take_from
from outdraft.engine.callers.content import ContentWriter
from outdraft.engine.callers.process import this_process
from outdraft.engine.callers.worker import LAST_STEP, STOPPED, Ask, Join, Worker
from outdraft.engine.callers.writer import Writer
from outdraft.engine.loop import Engine
from outdraft.kernels.threads import num_threads
from outdraft.options.errors import CapabilityError, RequestError

T = TypeVar("T")
_FORKED = (
    "this process was forked while a request was being decoded, and what the engine was doing then is lost: make the "
    "LLM anew in this process, or fork when no request runs"
)
_CLOSED = "this LLM is closed: make another one, or ask before close() or the end of its `with` block"
_ITSELF = (
    "a request from within the engine's own thread would wait for itself for ever: ask another LLM (with_drafter makes "
    "one over the same weights), or ask from another thread"
)


class EngineThread(OneProcess):
    """The only way to reach an engine. `native`: PyTorch has little to do beside the kernels, and keeps one thread."""

    def __init__(self, engine: Engine, codec: Codec[Any] | None, *, native: bool) -> None:
        self.engine = engine
        self._codec = codec
        self._writer: Any = Writer if codec is None or codec.encodes is str else ContentWriter
        self._native = native
        self._lock = Lock()
        self._worker: Worker | None = None
        self._calls: WeakSet[Call] = WeakSet()
        self._is_lost = self._is_closed = False
        this_process().doors.add(self)

    def submit(
        self,
        requests: Seq[Request],
        *,
        streams: bool = False,
        stream_interval: int = 0,
        wake: Callable[[], object] | None = None,
        asked_at: float | None = None,
        together: bool = False,
    ) -> list[Call]:
        """Queue them all; none, if one is invalid. `streams`: events are wanted step by step; `wake`: see `Call`;
        `stream_interval`: see `Writer`; `together`: where too many wait for one of them, all are refused.

        `asked_at`: when their caller asked, by the engine's clock; their timeouts count from there. None: now.
        """
        if together:
            self._check_number(requests)
        asked_at = self.engine.clock() if asked_at is None else asked_at
        tables = {stop: StopTable(stop) if stop else None for stop in {request.params.stop for request in requests}}
        stops = [tables[request.params.stop] for request in requests]
        seqs = [
            self.engine.prepare(request, table and find_stops(table, request.params, self._codec), asked_at=asked_at)
            for request, table in zip(requests, stops, strict=True)
        ]
        keeps, interval = self.engine.composition.keeps, stream_interval if streams else maxsize
        writers = [
            self._writer(seq, self._codec, table, lossless=keeps(seq), stream_interval=interval, engine=self.engine)
            for seq, table in zip(seqs, stops, strict=True)
        ]
        worker = self._start()
        if current_thread() is worker.thread:
            raise CapabilityError(_ITSELF)
        calls = [Call(writer, worker.inbox, streams=streams, wake=wake) for writer in writers]
        with self._lock:
            self._calls.update(calls)
        worker.send(Join([call.outbox for call in calls], 1 if self._native else num_threads(), together))
        return calls

    def _check_number(self, requests: Seq[Request]) -> None:
        """Raise `RequestError` for more texts of one request than the engine ever holds."""
        settings = self.engine.scheduler.settings
        if settings.max_num_waiting is None or len(requests) <= settings.max_num_seqs + settings.max_num_waiting:
            return
        raise RequestError(
            f"n: {len(requests)} texts of one request (n of each prompt) are more than ever fit, with max_num_seqs="
            f"{settings.max_num_seqs} and max_num_waiting={settings.max_num_waiting}: ask for fewer at once"
        )

    def ask(self, work: Callable[[Engine], T]) -> T:
        """Have something done between two steps, and wait for it."""
        worker = self._start()
        if current_thread() is worker.thread:
            return work(self.engine)
        answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        worker.send(Ask(work, answer))
        result, error = take_from(answer)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    @property
    def is_busy(self) -> bool:
        return self._worker is not None and self._worker.is_busy

    def settle(self) -> None:
        """Before a fork: where all callers have left, wait for the step under way, which no caller waits for."""
        worker = self._worker
        if worker is None or not worker.is_busy or current_thread() is worker.thread:
            return
        with self._lock:
            is_wanted = any(not call.is_over for call in self._calls)
        if not is_wanted:
            answer: SimpleQueue[Any] = SimpleQueue()
            worker.send(Ask(lambda engine: setattr(worker, "rests", True), answer))
            with suppress(Empty):
                answer.get(timeout=LAST_STEP)

    def renew(self, *, is_lost: bool) -> None:
        """In a forked process: nothing is left of the thread, and no thread answers the calls under way."""
        self._lock, self._worker, self._is_lost = Lock(), None, self._is_lost or is_lost
        for call in list(self._calls):
            call.outbox.fail(CapabilityError(_FORKED))

    def close(self) -> None:
        """End the thread; requests under way are refused, and so is every later one."""
        with self._lock:
            worker, self._is_closed = self._worker, True
        if worker is not None:
            worker.stop()

    def _start(self) -> Worker:
        if self._is_closed:
            raise CapabilityError(_CLOSED)
        if self._is_lost:
            raise CapabilityError(_FORKED)
        with self._lock:
            if self._worker is None or self._worker.end is not None:
                if this_process().is_ending:
                    raise CapabilityError(STOPPED)
                self._worker = Worker(self.engine)
                this_process().threads.add(self._worker)
                finalize(self, self._worker.inbox.put, None).atexit = False
            return self._worker
