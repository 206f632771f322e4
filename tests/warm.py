"""Processes of their own that begin at once: forked from one that has imported PyTorch, and nothing of ours.

    started("outdraft.cli.main", "serve", "--port", "0")     as `python -m outdraft.cli.main serve --port 0`
    started("import sys; sys.exit(3)")                       as `python -c ...`

The import is most of what a small command costs. The one process that has done it is started with the first that is
asked for, and ends with this one.
"""

import atexit
import os
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import IO

LIMIT = 120.0  # seconds
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process, and what it writes: its standard output, and its errors where they have a pipe of their own."""

    process: BaseProcess
    out: IO[bytes]
    err: IO[bytes]

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """Its exit status, negative for a signal's number."""
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode

    def whole(self) -> tuple[int, str, str]:
        """The exit status, and all that it writes; of little, since the pipes are read one after the other."""
        out, err = self.out.read().decode(), self.err.read().decode()
        return self.end(), out, err


@contextmanager
def started(
    what: str,
    *words: object,
    to_out: int | None = None,
    to_err: int | None = None,
    fresh: bool = False,
    **environment: str,
) -> Iterator[Started]:
    """Killed in the end, or after two minutes, with all that it has started.

    `what`: a module, or code. `to_out`, `to_err`: descriptors for what it writes; else pipes.
    `fresh`: as slow as any other process, where the end of the interpreter matters.
    """
    (out, into_out), (err, into_err) = os.pipe(), os.pipe()
    ends = [os.open(os.devnull, os.O_RDONLY), into_out, into_err]
    for end, other in ((into_out, to_out), (into_err, to_err)):
        if other is not None:
            os.dup2(other, end)
    given = [Connection(end) for end in ends]
    env = {**os.environ, **environment}
    process = _CONTEXT.Process(target=_run, args=(what, [str(word) for word in words], given, env, fresh))
    process.start()
    assert process.pid is not None
    timer = threading.Timer(LIMIT, _kill, [process])
    timer.start()
    for one in given:
        one.close()
    with os.fdopen(out, "rb") as out_file, os.fdopen(err, "rb") as err_file:
        try:
            yield Started(process=process, out=out_file, err=err_file)
        finally:
            timer.cancel()
            _kill(process)
            process.join()


def _kill(process: BaseProcess) -> None:
    assert process.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _run(what: str, words: list[str], ends: list[Connection], env: dict[str, str], fresh: bool) -> None:
    """In the child: the program, which leads a group of its own."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
    for number, end in enumerate(ends):
        os.dup2(end.fileno(), number)
        end.close()
    os.environ.clear()
    os.environ.update(env)
    is_module = what.replace(".", "").isidentifier()
    if fresh:
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.execv(sys.executable, [sys.executable, "-m" if is_module else "-c", what, *words])
    sys.stdin = os.fdopen(0)
    sys.argv = [what, *words]
    try:
        if is_module:
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<started>", "exec"), {"__name__": "__main__"})
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
