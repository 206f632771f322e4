"""Neighbours of a bench compute while it measures, and end with it, even if it is killed; and they are on record."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outdraft.bench.load.processes import read_ticks
from outdraft.bench.neighbours import busy_neighbours

LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def until(true, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


@LINUX
def test_they_compute_and_end():
    with busy_neighbours(2) as pids:
        assert len(pids) == 2 and all(os.getsid(pid) == pid for pid in pids)
        assert os.getpriority(os.PRIO_PROCESS, pids[0]) == os.getpriority(os.PRIO_PROCESS, 0)
        assert all(until(lambda pid=pid: (read_ticks([pid]) or 0) > 3) for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@LINUX
def test_they_end_with_a_bench_that_is_killed():
    script = "from outdraft.bench.neighbours import busy_neighbours\nimport time\n"
    script += "with busy_neighbours(1) as pids:\n print(*pids, flush=True)\n time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        pid = int(bench.stdout.readline())
        bench.send_signal(signal.SIGKILL)
    assert until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_none_is_none():
    with busy_neighbours(0) as pids:
        assert pids == []
