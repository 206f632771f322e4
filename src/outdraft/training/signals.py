"""Signals to a running training: SIGUSR1 to begin its end, Ctrl-C or SIGTERM to save and stop."""

import signal
from types import FrameType, TracebackType
from typing import Any


class Signals:
    """Listens inside a `with`; the handlers that were there before come back behind it."""

    def __init__(self, listens: bool) -> None:
        self.finish = self.stop = False
        self._listens = listens
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if self._listens:
            try:
                for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
                    self._before[number] = signal.signal(number, self._hear)
            except ValueError:
                pass  # not the main thread: only the file is heard
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.finish = True
        else:
            self.stop = True
