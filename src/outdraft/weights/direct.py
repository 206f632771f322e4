"""Read a file past the page cache, so that what was read leaves no copy in memory but the reader's own.

O_DIRECT where the file system has it; else ordinary reads, after each of which the system is asked to forget the pages.
Offsets and sizes of direct reads are multiples of `ALIGN`, and the memory begins at one. `gbps` slows reads down to a
disk of so many gigabytes a second, for measurements.
"""

import os
from pathlib import Path
from threading import Lock
from time import perf_counter, sleep, time_ns

from outdraft.options.errors import ModelLoadError

ALIGN = 4096
TICK = 0.1  # seconds: clocks of files tick every 1 to 10 ms, and a second write in one tick leaves no trace


def align(size: int) -> int:
    """The next multiple of `ALIGN`."""
    return -(-size // ALIGN) * ALIGN


def read_stamp(descriptor: int) -> tuple[int, int]:
    """Of an open file: the size and the time of the last change, which every write moves by a tick or not at all."""
    told = os.fstat(descriptor)
    return told.st_size, told.st_mtime_ns


def is_fresh(stamp: tuple[int, int]) -> bool:
    """Whether the last change is so near that another one may still come, or be under way, without moving the stamp."""
    return abs(time_ns() - stamp[1]) < TICK * 1e9


def settled_stamp(descriptor: int) -> tuple[int, int]:
    """The stamp, after a tick where the last change is fresh."""
    if is_fresh(read_stamp(descriptor)):
        sleep(TICK)
    return read_stamp(descriptor)


class DirectFile:
    """Aligned pieces of one file. `num_read` counts bytes, `seconds` the time that reading took."""

    def __init__(self, path: Path, *, gbps: float | None = None) -> None:
        self.path = path
        self.gbps = gbps
        self.num_read = 0
        self.seconds = 0.0
        self.is_direct = hasattr(os, "O_DIRECT")
        self._lock = Lock()
        self._open()

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | (os.O_DIRECT if self.is_direct else 0))
        except OSError:  # a file system without direct reads, as those in memory
            self.is_direct = False
            self._fd = os.open(self.path, os.O_RDONLY)
        self._stamp = read_stamp(self._fd)

    def reopen(self) -> None:
        """Read the file that stands at the path by now."""
        os.close(self._fd)
        self._open()

    def was_written(self) -> bool:
        """Whether another program may have written to the file since it was opened, or since this was asked last."""
        before, self._stamp = self._stamp, read_stamp(self._fd)
        return before != self._stamp or is_fresh(self._stamp)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def renew(self) -> None:
        """In a forked process, whose parent's thread may have been counting."""
        self._lock = Lock()

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill `memory` with the bytes from `offset` on. Raises `ModelLoadError` where the file ends before that."""
        began, done = perf_counter(), 0
        while done < len(memory):
            got = os.preadv(self._fd, [memory[done:]], offset + done)
            if got == 0 or (got % ALIGN and self.is_direct):
                raise ModelLoadError(
                    f"{self.path} ends at byte {offset + done + got}, too early: delete it, and it will be made again"
                )
            done += got
        if not self.is_direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, offset, len(memory), os.POSIX_FADV_DONTNEED)
        if self.gbps is not None:
            sleep(max(0.0, began + done / (self.gbps * 1e9) - perf_counter()))
        with self._lock:
            self.num_read += done
            self.seconds += perf_counter() - began
