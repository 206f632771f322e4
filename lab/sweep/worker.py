"""The process that runs cases: it reads their numbers from standard input, a line each, and answers with verdicts.

    python -m lab.sweep.worker MODULE DIRECTORY SEED LIMIT

MODULE has `load(directory, seed)`, which returns the case of a number. What the cases print is thrown away. A case may
use LIMIT seconds of processor time (a busy machine must not look like a hang), `STILL` times as many of the clock (it
may wait for what never comes), and memory only up to a few gigabytes above what stands when the work begins: a size
that a file merely claims is refused by the system.
"""

import json
import os
import resource
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType

import torch

from lab.sweep.case import Overtime, judge

STILL = 15  # times the limit, by the clock
ROOM = 3 << 30  # bytes of address space beyond those of the start


def main() -> int:
    """Serve until standard input ends."""
    module, directory, seed, limit = sys.argv[1:]
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    case_of = import_module(module).load(Path(directory), int(seed))
    _bound_memory()
    for over in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(over, _overtime)
    numbers = os.fdopen(os.dup(0), "r")
    os.dup2(nowhere, 0)  # a command that reads standard input finds nothing there
    for line in numbers:
        number = int(line)
        case = case_of(number)
        answers.write(json.dumps({"begun": case.name}) + "\n")
        answers.flush()
        signal.setitimer(signal.ITIMER_REAL, STILL * float(limit))
        signal.setitimer(signal.ITIMER_PROF, float(limit))
        verdict = judge(number, case)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(verdict.to_json()) + "\n")
        answers.flush()
    return 0


def _bound_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def _overtime(signum: int, frame: FrameType | None) -> None:
    raise Overtime


if __name__ == "__main__":
    sys.exit(main())
