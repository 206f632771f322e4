"""Wait until processes sleep. Pools of threads poll for a while after their work, on cores that the next one needs.

Linux shows the processor time of a process; where it does not, a fixed pause must do.
"""

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path

STEP, LONGEST = 0.02, 2.0  # seconds between two looks (two ticks of the kernel's clock), and in all


def wait_until_idle(
    pids: Seq[int], read: Callable[[Seq[int]], int | None] | None = None, sleep: Callable[[float], object] = time.sleep
) -> bool:
    """Return when none of them used the processor for one step, True; or after `LONGEST`, False."""
    read = read or read_ticks
    before = read(pids)
    if before is None:
        sleep(0.25)
        return True
    for _ in range(round(LONGEST / STEP)):
        sleep(STEP)
        after = read(pids)
        if after == before:
            return True
        before = after
    return False


def read_ticks(pids: Seq[int]) -> int | None:
    """Processor time of these processes, all threads, in ticks; None where it is not shown."""
    try:
        # after the name in brackets, which may hold blanks: fields 14 and 15 of the whole are user and system time
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    except OSError:
        return None
    return sum(int(one[11]) + int(one[12]) for one in stats)
