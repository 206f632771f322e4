"""Free memory and total memory of this process, as the operating system counts them. Data out: bytes.

Linux only: /proc/meminfo, and the limits of the control groups that the process is in, as containers have: of
version 2, and of version 1 where that one rules memory.
"""

import gc
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from outdraft.core.c_library import give_back_freed
from outdraft.core.cores import limits_of
from outdraft.options.errors import CapabilityError


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
        told = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise CapabilityError(
            "free memory cannot be read here (no /proc/meminfo): name a precision instead of 'elastic'"
        ) from error
    for line in told:  # "0::/system.slice/x", or "4:memory:/docker/x"
        _, controllers, own = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "")
        files = _FILES.get("memory" if "memory" in controllers.split(",") else controllers)
        if files is not None:
            limits = limits_of(root / "sys/fs/cgroup" / files.folder, own, partial(_read_limit, files))
            memory = min([memory, *limits], key=lambda one: one.free)
    return memory


def give_back() -> None:
    """Return to the system what no object holds any more.

    The C library keeps what was freed in the middle of its heap: of 420 MB that a change of precision set free, 360
    stayed with the process until it was asked.
    """
    gc.collect()  # hooks and closures may hold weights in a ring
    give_back_freed()


@dataclass(frozen=True, slots=True)
class _Files:
    """What the files of a control group are called. `folder`: below /sys/fs/cgroup."""

    folder: str
    limit: str  # "max", or a number that no machine has: none
    used: str
    caches: str  # in memory.stat


_FILES = {  # by the controller that /proc/self/cgroup names; version 2 names none
    "": _Files("", "memory.max", "memory.current", "inactive_file"),
    "memory": _Files("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def _read_limit(files: _Files, group: Path) -> Memory | None:
    """Of one control group; None where it has no limit."""
    try:
        total, used = (int((group / name).read_text()) for name in (files.limit, files.used))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return Memory(free=max(0, total - used + int(stat.get(files.caches, 0))), total=total)
