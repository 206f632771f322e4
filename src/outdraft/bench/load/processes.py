"""The processes behind a server's port on this machine: so that their work can be counted, and waited for.

Linux shows who listens (`/proc/net/tcp`, the sockets that a process holds) and who started whom. Where it does
not, for a server elsewhere or of another user, no process is found.
"""

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from outdraft.bench.load.quiet import read_ticks

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
