"""A description of the machine, as plain data. Times of different machines cannot be compared, so every row has it.

`describe` is what must be equal for a row to count as done already; the load of the moment is kept beside it.
"""

import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

from outdraft import __version__
from outdraft.core.cores import count_cores, cpu_quota
from outdraft.kernels.threads import num_threads


def describe(device: str) -> dict[str, Any]:
    """Processor, cores that we may use, threads, memory, versions, and the GPU if there is one in use."""
    told = {
        "cpu": _cpu(),
        "cores": count_cores(),
        "threads": num_threads(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "outdraft": __version__,
    }
    if (quota := cpu_quota()) is not None:
        told["quota"] = quota
    if torch.device(device).type == "cuda":
        told["gpu"] = torch.cuda.get_device_name(device)
    return told


def load_average() -> float | None:
    """Processes that wanted a core during the last minute; above `cores`, times are not to be trusted."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def busy_cores(seconds: float = 0.2) -> float | None:
    """How many of our cores other programs use now: measured while this process sleeps. None where it is not known."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    if before is None or after is None:
        return None
    shares = [(after[n][0] - busy) / max(1, after[n][1] - total) for n, (busy, total) in before.items() if n in after]
    return round(sum(shares), 1)


def busy_note(busy: float | None = None) -> str:
    """A warning where others use a good part of our cores, else nothing. `busy`: of `busy_cores`, measured if None."""
    busy = busy_cores() if busy is None else busy
    cores = count_cores()
    if busy is None or busy < max(0.3, 0.15 * cores):
        return ""
    return (
        f"this machine is busy: other programs use about {busy:.1f} of {cores} cores now, so times will be longer and "
        "speed-ups less sure"
    )


def _ticks(told_in: Path = Path("/proc/stat")) -> dict[int, tuple[int, int]] | None:
    """Core -> its busy ticks and all its ticks, of the cores that we may use."""
    try:
        lines = [line.split() for line in told_in.read_text().splitlines() if line.startswith("cpu")]
        ours = os.sched_getaffinity(0)
        cores = {int(words[0][3:]): [int(word) for word in words[1:9]] for words in lines if words[0] != "cpu"}
    except (OSError, ValueError, AttributeError):
        return None
    return {n: (sum(told) - told[3] - told[4], sum(told)) for n, told in cores.items() if n in ours}


def _cpu() -> str:
    """The name that people know, with the instruction sets that decide the speed of small matrices."""
    try:
        told = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in told.splitlines())}
    flags = found.get("flags", "").split()
    fast = [name for name, flag in (("AMX", "amx_bf16"), ("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in flags]
    name = found.get("model name") or platform.machine()
    return f"{name}, {fast[0]}" if fast else name


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
