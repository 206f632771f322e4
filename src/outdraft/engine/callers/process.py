"""What happens to the engines' threads when the process forks or ends.

A forked process has none of its parent's threads. Before a fork each engine may finish a step that no caller waits for
any more; in the child each forgets its thread. At the end every thread is stopped, since one that is in native code
when Python ends would abort the process.
"""

import atexit
import os
from contextlib import suppress
from functools import cache
from typing import Protocol
from weakref import WeakSet


class Door(Protocol):
    """An engine as its callers know it, whether its thread has been started or not."""

    @property
    def is_busy(self) -> bool:
        """Whether a request or a step is under way."""

    def settle(self) -> None:
        """Before a fork: wait for the step under way, unless one of its callers still waits for it."""

    def renew(self, *, is_lost: bool) -> None:
        """This is the child. `is_lost`: some engine was busy, so what the child has of it cannot be trusted."""


class Stoppable(Protocol):
    """An engine's thread, as the end of the process sees it."""

    def stop(self) -> None:
        """End it, and wait a little until it has ended."""


class Process:
    """All that has to hear of it. Python calls such hooks without arguments, so there is one of it."""

    def __init__(self) -> None:
        self.doors: WeakSet[Door] = WeakSet()
        self.threads: WeakSet[Stoppable] = WeakSet()  # each is held while it runs, also when its door is gone
        self.is_ending = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._settle, after_in_child=self._renew)
        atexit.register(self._stop)

    def _settle(self) -> None:
        for door in list(self.doors):
            door.settle()

    def _renew(self) -> None:
        doors = list(self.doors)
        is_lost = any(door.is_busy for door in doors)
        for door in doors:
            door.renew(is_lost=is_lost)

    def _stop(self) -> None:
        self.is_ending = True
        for thread in list(self.threads):
            with suppress(Exception):
                thread.stop()


@cache
def this_process() -> Process:
    """The one; made when the first engine is."""
    return Process()
