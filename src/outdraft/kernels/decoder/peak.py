"""How many additions and multiplications a second the machine's dot products do at most: the roof over every pass."""

from statistics import median
from time import perf_counter

from outdraft.kernels.library import require_library

REPEATS, LEAST = 7, 0.01  # measurements, and seconds of each


def dot_peak(bits: int, *, threads: int = 1, kind: str = "") -> float:
    """Operations a second on so many threads, of bf16 numbers (`bits` 16) or of bytes; a product of K inputs has 2 K.

    `kind`: which instruction set, "" = the best. The numbers stay in registers, so memory plays no part. The median of
    seven measurements. Raises `CapabilityError` where the kernels are not built.
    """
    native = require_library()
    turns, found = 1 << 12, list[float]()
    while len(found) < REPEATS:
        began = perf_counter()
        done = native.od_dot_work(bits, turns, threads, kind.encode())
        seconds = perf_counter() - began
        if seconds < LEAST:
            turns *= 2
        else:
            found.append(done / seconds)
    return median(found)
