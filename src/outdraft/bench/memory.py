"""The most memory that this process held: of the host, and of the GPU if that is where the model is.

Everything loaded counts, the target and all the other drafters of the run too; Linux can forget the old peak, so that
each method has its own; elsewhere the peak is the one since the start.
"""

import sys
from pathlib import Path

import torch


def forget_peak(device: str) -> None:
    """Begin anew from what is held now."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # not Linux, or not allowed


def read_peak(device: str) -> dict[str, int]:
    """Bytes: {"host": ..., "device": ...}; a key is absent where nothing can be read."""
    peak: dict[str, int] = {}
    if torch.device(device).type == "cuda":
        peak["device"] = int(torch.cuda.max_memory_allocated(device))
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            peak["host"] = int(line.split()[1]) * 1024
    if "host" not in peak and sys.platform != "win32":
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak["host"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return peak
