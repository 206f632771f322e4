"""One mutant on trial: the tests that run its line, the quick ones first, in a forked process, until one fails.

The parent has the heavy libraries loaded and nothing of ours, so a child begins at once and imports the mutated module
in the honest one's place. An endless loop ends at a limit of processor time, which each test has of its own; a deadlock
when the process has used none for a while.
"""

import importlib
import importlib.machinery
import os
import resource
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, process_time, sleep

import pytest

from mutation.cover import Cover
from mutation.mutants import ROOT, SOURCE, Mutant, statement_lines

KILLED, SURVIVED, UNTESTED = "killed", "survived", "untested"
ROOM = 10.0  # seconds of processor time that a test may take beside three times what it took
IDLE = 90.0  # seconds with next to no processor time, after which nothing is expected any more
LEAST = 100  # ticks of the system in so long (one second), which a thread that only looks at the clock does not use
_NO_TESTS = (3, 4, 5, 70)  # pytest's words for tests that are not there, and for itself
MEMORY = 8 << 30  # bytes of address space beyond what the parent has


def try_mutant(mutant: Mutant, cover: Cover, budget: float, sound: set[str]) -> tuple[str, str]:
    """The verdict, and what it rests on.

    `budget`: seconds of tests at most, as they were measured. `sound`: tests that were seen to pass here, in a forked
    process and without a fault; a test that kills its first mutant is tried so before it is believed.
    """
    tests = list(choose_tests(cover, cover.tests_of(mutant.file, statement_lines(mutant.file, mutant.line)), budget))
    if not tests:
        return UNTESTED, "no test runs this line"
    seconds = sum(cover.tests[test] for test in tests)
    times = {test: cover.tests[test] for test in tests}
    path = SOURCE / mutant.file
    status, failed = _fork(path, mutant.apply(), times)
    if status == 0:
        return SURVIVED, f"{len(tests)} tests, {seconds:.0f} s"
    if status in _NO_TESTS:
        if _fork(path, path.read_text("utf-8"), times)[0] in _NO_TESTS:
            raise RuntimeError(f"{mutant.key}: the tests that were chosen cannot be run; is the coverage stale?")
        return KILLED, "a file of tests cannot be imported"
    if failed and failed not in sound:
        before = tests[: tests.index(failed) + 1] if failed in tests else tests
        if _fork(path, path.read_text("utf-8"), {test: times[test] for test in before})[0]:
            raise RuntimeError(f"{failed} fails here without any fault")
        sound.add(failed)
    ends = (-signal.SIGXCPU, -signal.SIGKILL)
    why = {1: f"{failed} fails", 2: "it cannot be imported"}
    return KILLED, why.get(status, "it does not end" if status in ends else f"the process dies, status {status}")


def _fork(path: Path, code: str, times: dict[str, float]) -> tuple[int, str]:
    """The exit status of these tests (and their seconds) with `code` in the module's place, and the one that failed."""
    ear, mouth = os.pipe()
    child = os.fork()
    if not child:
        status = 70
        try:
            os.close(ear)
            status = _run(path, code, times, mouth)
        finally:
            os._exit(status)
    os.close(mouth)
    status = _wait(child)
    with os.fdopen(ear) as told:
        return status, told.read().partition("\n")[0]


def choose_tests(cover: Cover, tests: set[str], budget: float) -> Iterator[str]:
    """One of each test function before the second of any, the quick ones first, until the budget is spent."""
    functions: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda one: (cover.tests[one], one)):
        functions[test.partition("[")[0]].append(test)
    rounds = [(turn, cover.tests[test], test) for cases in functions.values() for turn, test in enumerate(cases)]
    spent = 0.0
    for _, cost, test in sorted(rounds):
        if spent and spent + cost > budget:
            continue
        spent += cost
        yield test


class _Watch:
    """A pytest plug-in: limits each test's processor time, and writes the test that failed into a pipe."""

    def __init__(self, pipe: int, times: dict[str, float]) -> None:
        self._pipe = pipe
        self._times = times

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """The process ends where the test goes on for longer."""
        limit = int(process_time() + ROOM + 3 * self._times.get(nodeid, 0.0)) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of every phase of a test."""
        if report.failed:
            os.write(self._pipe, f"{report.nodeid}\n".encode())


def _run(path: Path, code: str, times: dict[str, float], pipe: int) -> int:
    """In the child: pytest's exit status."""
    os.setpgid(0, 0)
    os.chdir(ROOT)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space(os.getpid()) + MEMORY, resource.RLIM_INFINITY))
    limit = int(ROOM * 3)  # of what is imported
    resource.setrlimit(resource.RLIMIT_CPU, (int(process_time()) + limit, resource.RLIM_INFINITY))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    honest = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        if Path(self.get_filename(fullname)) == path:
            return compile(code, str(path), "exec")
        return honest(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    try:
        importlib.import_module(".".join(path.relative_to(SOURCE.parent).with_suffix("").parts))
    except Exception:  # whatever it is, every test that needs the module would meet it
        return 2
    words = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *times]
    return int(pytest.main(words, plugins=[_Watch(pipe, times)]))


def _wait(child: int) -> int:
    """The exit status; negative where it had to be ended."""
    used, since = 0, monotonic()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if (now := _ticks(child)) - used >= LEAST:
            used, since = now, monotonic()
        if monotonic() - since > IDLE:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL
        sleep(0.05)


def _ticks(process: int) -> int:
    """Processor time used so far, in the system's ticks."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _address_space(process: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()


def preload() -> None:
    """Load what every test needs of other people's code, before the first fork."""
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import safetensors.torch  # noqa: F401
    import tokenizers  # noqa: F401
    import torch

    torch.set_num_threads(1)
    assert not any(name.startswith("outdraft") for name in sys.modules)
