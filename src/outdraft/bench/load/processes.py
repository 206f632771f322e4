"""The processes behind a server's port on this machine: so that their work can be counted, and waited for.

Linux shows who listens (`/proc/net/tcp`, the sockets that a process holds), who started whom, and the processor time of
each. Where it does not, for a server elsewhere or of another user, no process is found, and a fixed pause must do.
"""

import os
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

STEP, LONGEST = 0.02, 2.0  # seconds between two looks (two ticks of the kernel's clock), and in all
_HERE = ("localhost", "127.0.0.1", "::1")
_LISTENS = "0A"  # the kernel's number of that state


def find_processes(url: str, proc: Path = Path("/proc")) -> list[int]:
    """Who listens at this URL, and all that they started, but for this process; empty if it is not shown."""
    where = urlsplit(url)
    if where.hostname not in _HERE:
        return []
    sockets = _listening(where.port or 80, proc)
    running = [int(path.name) for path in proc.glob("[0-9]*")]
    found = [pid for pid in running if pid != os.getpid() and sockets & _sockets_of(pid, proc)]
    parents = {pid: _parent(pid, proc) for pid in running}
    for pid in found:  # grows while it is walked
        found += [child for child, parent in parents.items() if parent == pid and child not in found]
    return found


def processor_seconds(pids: list[int]) -> float | None:
    """What these processes have used so far; None if there are none, or one is gone."""
    ticks = read_ticks(pids) if pids else None
    return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")


def wait_until_idle(
    pids: Seq[int], read: Callable[[Seq[int]], int | None] | None = None, sleep: Callable[[float], object] = time.sleep
) -> bool:
    """Return when none of them used the processor for one step, True; or after `LONGEST`, False.

    Pools of threads poll for a while after their work, on cores that the next one needs.
    """
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


def _listening(port: int, proc: Path) -> set[str]:
    """The sockets that listen at the port, as links to them are written."""
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{words[9]}]")
    return found


def _sockets_of(pid: int, proc: Path) -> set[str]:
    found = set()
    with suppress(OSError):
        for link in (proc / str(pid) / "fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(link))
    return found


def _parent(pid: int, proc: Path) -> int:
    with suppress(OSError):
        return int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0
