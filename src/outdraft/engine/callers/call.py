"""The connection of one request's caller to the engine's thread: a queue of events, and a message that cancels.

    caller   Call   <---- queue of lists of events ----   Outbox   engine's thread
                    ----> Leave (in the inbox) ------->

A caller that streams gets a list for each step; one that wants the whole gets one list at the end and is not woken
before. The engine never holds a `Call`, and one that no caller holds has left. Leaving takes no lock, so that a
finaliser may do it wherever the garbage collector runs, inside another request's step too.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from outdraft.core.events import StepEvent
from outdraft.core.one_process import OneProcess
from outdraft.core.sequence import Sequence
from outdraft.engine.callers.result import Chunk
from outdraft.engine.callers.writer import Writer
from outdraft.options.errors import OutdraftError

T = TypeVar("T")
_LISTEN = 0.5  # seconds; between them Python handles signals that the system gave to another thread


def take_from(queue: "SimpleQueue[T]") -> T:
    """Block until there is something in the queue, and take it; signals are handled meanwhile."""
    while True:
        with suppress(Empty):
            return queue.get(timeout=_LISTEN)


@dataclass(slots=True, kw_only=True)
class Outbox:
    """The engine's end. `wake` is called after every list, from the engine's thread."""

    seq: Sequence
    streams: bool
    wake: Callable[[], object] | None
    queue: "SimpleQueue[list[StepEvent]]" = field(default_factory=SimpleQueue)
    _kept: list[StepEvent] = field(default_factory=list)

    def post(self, event: StepEvent) -> None:
        """Hand it over, or keep it until there is something to show."""
        self._kept.append(event)
        if event.finish_reason is not None or (self.streams and event.tokens):
            self._hand_over()

    def welcome(self) -> None:
        """The engine has taken the request: a caller that streams learns it by a list without events."""
        if self.streams:
            self._hand_over()

    def _hand_over(self) -> None:
        kept, self._kept = self._kept, []
        self.queue.put(kept)
        if self.wake is not None:
            with suppress(RuntimeError):  # the loop is closed, so no caller waits
                self.wake()

    def fail(self, error: OutdraftError) -> None:
        """The engine will not decode it: end with an error."""
        self.post(StepEvent(seq_id=self.seq.id, finish_reason="error", error=error))


@dataclass(frozen=True, slots=True)
class Leave:
    """The caller wants no more of this sequence."""

    seq: Sequence


class Call(OneProcess):
    """The caller's end. `wake`: called after every list of events, from the engine's thread."""

    def __init__(
        self, writer: Writer, inbox: "SimpleQueue[Any]", *, streams: bool, wake: Callable[[], object] | None = None
    ) -> None:
        self.writer = writer
        self._inbox = inbox
        self.outbox = Outbox(seq=writer.seq, streams=streams, wake=wake)
        self._has_left = False
        self.is_answered = False  # the engine has taken it, or refused it

    def __del__(self) -> None:
        if hasattr(self, "_has_left"):
            self.leave()

    @property
    def finished(self) -> bool:
        """Whether all events have been read."""
        return self.writer.finish_reason is not None

    @property
    def is_over(self) -> bool:
        """Whether its caller wants nothing more of it."""
        return self._has_left or self.finished

    @property
    def num_unread(self) -> int:
        """Tokens that wait to be read; perhaps too many of a text that is still written."""
        return 0 if self.outbox.queue.empty() else self.writer.seq.num_output - self.writer.num_ids

    def wait(self) -> None:
        """Block until there are events, and read them."""
        self._read(take_from(self.outbox.queue))

    def read(self) -> None:
        """Read the events that are there, without waiting for any; those that come meanwhile are for the next time."""
        for _ in range(self.outbox.queue.qsize()):
            self._read(self.outbox.queue.get_nowait())

    def take(self) -> list[Chunk]:
        """The pieces of text that were read and not taken yet."""
        chunks, self.writer.chunks = self.writer.chunks, []
        return chunks

    def raise_error(self) -> None:
        """Raise the request's error, if it ended with one."""
        if self.writer.error is not None:
            raise self.writer.error

    def leave(self) -> None:
        """What is unfinished is cancelled; may be called at any moment, from anywhere, and more than once."""
        if not self._has_left:
            self._has_left = True
            if not self.finished:
                self._inbox.put(Leave(self.outbox.seq))

    def _read(self, events: list[StepEvent]) -> None:
        self.is_answered = True
        for event in events:
            self.writer.push(event)
