"""How many cores this process may use: its affinity, and what a container's or a service's quota leaves of them.

A quota is processor time for each period (Linux, control groups v1 and v2: `docker run --cpus 1.5`, `CPUQuota=150%`).
A process that runs more threads than that is stopped for the rest of every period. PyTorch counts cores and ignores
the quota.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path("/sys/fs/cgroup")
_TOLD = Path("/proc/self/cgroup")


def count_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def useful_threads(asked: int, root: Path = _ROOT, told: Path = _TOLD) -> int:
    """`asked` threads, or as many as the quota keeps busy if that is fewer; at least one.

    A number that the user chose (`OMP_NUM_THREADS`) stands.
    """
    quota = None if "OMP_NUM_THREADS" in os.environ else cpu_quota(root, told)
    return asked if quota is None else max(1, min(asked, math.ceil(quota)))


def cpu_quota(root: Path = _ROOT, told: Path = _TOLD) -> float | None:
    """Cores' worth of processor time that this process and its group may use; None where nothing limits it."""
    try:
        lines = [line.split(":", 2) for line in told.read_text().splitlines()]
    except OSError:
        return None
    limits = []
    for _, controllers, group in (line for line in lines if len(line) == 3):
        if not controllers:
            limits += limits_of(root, group, _read_v2)
        elif "cpu" in controllers.split(","):
            limits += limits_of(root / controllers, group, _read_v1)
            limits += limits_of(root / "cpu", group, _read_v1)
    return min(limits, default=None)


def limits_of(root: Path, group: str, read: Callable[[Path], Any]) -> list[Any]:
    """The limits of a control group and of all above it: each holds. In a container its own group is the root."""
    own = root / group.strip("/")
    found = [read(place) for place in (own, *own.parents) if place.is_relative_to(root)]
    return [limit for limit in found if limit is not None]


def _read_v2(place: Path) -> float | None:
    words = _words(place / "cpu.max")
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _read_v1(place: Path) -> float | None:
    quota, period = _words(place / "cpu.cfs_quota_us"), _words(place / "cpu.cfs_period_us")
    return int(quota[0]) / int(period[0]) if quota and period and int(quota[0]) > 0 else None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
