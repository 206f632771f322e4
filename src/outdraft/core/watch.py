"""Who hears what an engine does: the trace of `outdraft replay` (`engine/trace.py`) and a server's metrics do."""

from collections.abc import Sequence as Seq
from typing import Protocol

from outdraft.core.decisions import Decisions
from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence


class Watch(Protocol):
    """`now` is the engine's clock. It is called in the engine's thread, and must not raise."""

    def asked(self, seq: Sequence, now: float) -> None:
        """A request was accepted, and waits."""

    def refused(self, seq: Sequence, now: float) -> None:
        """A request was not accepted, because too many wait."""

    def passed(self, decisions: Decisions, events: Seq[StepEvent], now: float, seconds: float) -> None:
        """A pass is over, with an event for each decision; without events, a slice of one, whose last one has it."""

    def ended(self, seq: Sequence, now: float) -> None:
        """A request is over, in whatever way."""


class Watches:
    """Those who hear one engine, in the order in which they came; they come and go in the engine's thread."""

    each: tuple[Watch, ...] = ()

    def add(self, watch: Watch) -> None:
        self.each = (*self.each, watch)

    def remove(self, watch: Watch) -> None:
        self.each = tuple(one for one in self.each if one is not watch)
