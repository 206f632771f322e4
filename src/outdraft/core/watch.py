"""Who hears what an engine does: the trace of `outdraft replay` (`engine/trace.py`) is one. By default nobody does."""

from collections.abc import Sequence as Seq
from typing import Protocol

from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence


class Watch(Protocol):
    """`now` is the engine's clock. It is told in the engine's thread, and must not raise."""

    def asked(self, seq: Sequence, now: float) -> None:
        """A request was accepted, and waits."""

    def passed(self, seqs: Seq[Sequence], events: Seq[StepEvent], now: float, seconds: float) -> None:
        """A pass over these sequences is over."""

    def ended(self, seq: Sequence, now: float) -> None:
        """A request is over, in whatever way."""


class Nobody:
    """What an engine has if no watch is given: it hears everything and keeps nothing."""

    def asked(self, seq: Sequence, now: float) -> None: ...

    def passed(self, seqs: Seq[Sequence], events: Seq[StepEvent], now: float, seconds: float) -> None: ...

    def ended(self, seq: Sequence, now: float) -> None: ...
