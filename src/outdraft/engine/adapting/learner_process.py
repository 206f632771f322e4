"""The process that learns: started, stopped while requests run, and begun again if it dies.

    requests run      SIGSTOP: it takes no cycle, no memory bandwidth and no part of a request's time
    none for a while  SIGCONT

It has idle priority besides. Where the system knows no such signals it has that alone. It dies with its engine.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic

_FIRST_WAIT, _LONGEST_WAIT = 10.0, 600.0  # seconds before it is begun again
_MOST_LOG = 1 << 20
_KERNELS = "16"  # that torch keeps: each length of a step has some of its own, and 1,024 by default take a gigabyte
TAKEN = 75  # exit code of a learner whose room has one


class LearnerProcess:
    """`outdraft adapt learn ROOM`. Called by one thread, but for `pause`, which any may call."""

    def __init__(self, room: Path, threads: int) -> None:
        self._room, self._threads = room, threads
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before, self._wait = 0.0, _FIRST_WAIT
        self.is_paused = False
        self._lock = Lock()  # around what is paused, and whether it is

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Of the process that runs."""
        return self._process.pid if self._process is not None and self.is_alive else None

    def keep_alive(self) -> str:
        """Start it, or begin it again; a sentence where it died."""
        if self.is_alive or monotonic() < self._not_before:
            return ""
        died = self._process
        is_taken = died is not None and died.returncode == TAKEN
        self._wait = _LONGEST_WAIT if is_taken else min(_LONGEST_WAIT, 2 * self._wait)
        self._not_before = monotonic() + self._wait
        log = self._room / "learner.log"
        fresh = not log.exists() or log.stat().st_size > _MOST_LOG
        kept = dict.fromkeys(("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"), _KERNELS)
        with self._lock, log.open("wb" if fresh else "ab") as told:
            self.is_paused = False
            self._process = subprocess.Popen(
                [sys.executable, "-m", "outdraft", "adapt", "learn", str(self._room), "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                env={**kept, **os.environ, "OMP_NUM_THREADS": str(self._threads)},
                start_new_session=True,  # Ctrl-C at a terminal is for the engine
            )
        if died is None or is_taken:
            return ""
        return f"the process that learns ended with {died.returncode} and begins again; its words are in {log}"

    def pause(self) -> None:
        """It takes no cycle from now on."""
        self._signal("SIGSTOP", paused=True)

    def go_on(self) -> None:
        """It goes on where it was paused."""
        self._signal("SIGCONT", paused=False)

    def stop(self) -> None:
        """End it; what it had learned since its last try is learned again by the next one."""
        if self._process is not None:
            with suppress(OSError):
                self._process.kill()
            self._process.wait()

    def _signal(self, name: str, *, paused: bool) -> None:
        number = getattr(signal, name, None)
        with self._lock, suppress(OSError):
            if self._process is not None and number is not None and self.is_paused != paused:
                self._process.send_signal(number)
                self.is_paused = paused
