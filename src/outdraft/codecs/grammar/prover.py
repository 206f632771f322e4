"""Forms are compiled in a child process first: one that takes too much memory or time, or breaks, ends there.

    form -> child: a fork compiles it, and makes its first mask, within limits -> what that took -> compiled here

The library hands out nothing that could be sent back, so that compiling here is the second time; the first one proves
that it can be afforded. The child is started with the first form, and anew if it has ended.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import finalize

from outdraft.codecs.grammar import prover_child
from outdraft.codecs.grammar.library import LIMITS
from outdraft.options.errors import RequestError

SECONDS = 1.0  # of processor time, for compiling a form and its first mask
MOST_BYTES = 256 << 20  # that this may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What compiling a form took. `error`: why the library does not compile it, in its own words."""

    error: str
    num_bytes: int
    seconds: float


class Prover:
    """A child process for one vocabulary. Any thread may ask; one form is compiled at a time."""

    def __init__(self, tokens: list[bytes]) -> None:
        """`tokens`: the bytes of each, and of the library's own end of text behind them."""
        self._tokens = tokens
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._has_vocabulary = False  # whether it has the vocabulary
        self._owner = 0  # the process that started the child: a fork of it must not share its pipes

    def prove(self, name: str, grammar: str) -> Proof:
        """Compile the grammar apart from here. Raises `RequestError`, `name` in it, where that takes too much."""
        with self._lock:
            found = self._ask(grammar)
        if (ended := found.get("signal")) is None:
            return Proof(error=found["error"], num_bytes=found["bytes"], seconds=found["seconds"])
        if ended == signal.SIGPROF:
            told = f"takes more than {SECONDS:g} s of processor time"
        elif ended == signal.SIGSEGV:
            told = "is nested too deeply"
        else:
            told = f"takes more than {MOST_BYTES >> 20} MiB of memory"
        raise RequestError(f"{name} of structured_outputs cannot be compiled, because that {told}: make it simpler")

    def _ask(self, grammar: str) -> dict[str, Any]:
        for _ in range(2):  # a child that was idle may have ended just now
            child = self._running()
            assert child.stdin is not None and child.stdout is not None
            try:
                if not self._has_vocabulary:
                    asked = {"tokens": self._tokens, "limits": dict(LIMITS), "seconds": SECONDS, "bytes": MOST_BYTES}
                    prover_child.send(child.stdin, asked)  # type: ignore[arg-type]
                    self._has_vocabulary = True
                prover_child.send(child.stdin, grammar)  # type: ignore[arg-type]
                return dict(prover_child.receive(child.stdout))  # type: ignore[arg-type]
            except (EOFError, OSError):
                self._child = None
                _end(child)
        raise RequestError("structured_outputs: the process that compiles forms ends by itself: is there memory left?")

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._owner != os.getpid():
            self._child, self._owner, self._has_vocabulary = self._start(), os.getpid(), False
        return self._child

    def _start(self) -> "subprocess.Popen[bytes]":
        program = str(Path(prover_child.__file__))
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise RequestError(f"structured_outputs: no process can be started to compile forms: {error}") from error
        finalize(self, _end, child)
        return child


def _end(child: "subprocess.Popen[bytes]") -> None:
    """It ends by itself once nothing more can come."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    child.kill()
    child.wait()
