"""Busy neighbours, as a laptop or a shared server has them: programs of one thread that only compute.

Each is a process in a session of its own with the priority that we have, and no core is named to it. So a
scheduler that divides the cores by sessions (Linux' autogroups) or by threads gives a peer's process and ours the same
share.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LOOP = """
import os, sys
parent, x = int(sys.argv[1]), 1
while os.getppid() == parent:  # who started it is still there
    for _ in range(1_000_000):
        x = (x * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
"""


@contextmanager
def busy_neighbours(count: int) -> Iterator[list[int]]:
    """Inside, `count` of them compute; their process ids. They end with the block, and with this process."""
    command = [sys.executable, "-c", _LOOP, str(os.getpid())]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield [one.pid for one in running]
    finally:
        for one in running:
            one.kill()
        for one in running:
            one.wait()
