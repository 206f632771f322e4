"""Free memory and total memory of this process, as the operating system counts them. Data out: bytes.

Linux only: /proc/meminfo, and the limits of the control groups (version 2) that the process is in, as containers have.
"""

import ctypes
import gc
import sys
from dataclasses import dataclass
from pathlib import Path

from outdraft.core.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of memory, free and in all."""

    free: int  # what can be taken without swapping; caches of files count as free
    total: int


def read_memory(root: Path = Path("/")) -> Memory:
    """The machine's, or the control group's where that has less. Raises `CapabilityError` where neither can be read."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        known = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        memory = Memory(free=known["MemAvailable"], total=known["MemTotal"])
        own = (root / "proc/self/cgroup").read_text().rpartition("::")[2].strip()  # "0::/system.slice/x"
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise CapabilityError(
            "free memory cannot be read here (no /proc/meminfo): name a precision instead of 'elastic'"
        ) from error
    group = root / "sys/fs/cgroup" / own.lstrip("/")
    for place in (group, *group.parents):
        if place == root / "sys/fs":
            break
        limit = _read_limit(place)
        if limit is not None:
            memory = min(memory, limit, key=lambda one: one.free)
    return memory


def give_back() -> None:
    """Return to the system what nobody holds any more.

    The C library keeps what was freed in the middle of its heap: of 420 MB that a change of precision set free, 360
    stayed with the process until it was asked.
    """
    gc.collect()  # hooks and closures may hold weights in a ring
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _read_limit(group: Path) -> Memory | None:
    """Of one control group; None where it has no limit."""
    try:
        total = int((group / "memory.max").read_text())  # "max": no limit
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return Memory(free=max(0, total - used + int(stat.get("inactive_file", 0))), total=total)
