"""Units of weights in a file, of which some are in memory for good and the others pass through two buffers.

    file      [ unit 0 | unit 1 | unit 2 | unit 3 | head | embedding rows | index ]
    resident            unit 1                     head
    buffers   A: unit 2, in use       B: unit 3, being read by a thread        then A: unit 0 of the next pass ...

Units are asked for in order, round after round, so the next one that is not resident is read while this one is used.
Any other order works too and only waits longer. Data in: a file and a budget; data out: addresses of units.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from collections.abc import Sequence as Seq
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from outdraft.kernels.checksum import checksum
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.weights.direct import DirectFile, align


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The position and the size of a unit in the file, in bytes."""

    offset: int  # a multiple of `ALIGN`
    size: int  # bytes
    checksum: int


class MemoryBlock:
    """Memory of its own pages."""

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, align(size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # a fork has its own
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._pages.madvise(mmap.MADV_HUGEPAGE)
        self.memory = memoryview(self._pages)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))


def choose_resident(sizes: Seq[int], budget: int) -> frozenset[int]:
    """Which units stay in memory beside the two buffers: the last one (the head, which drafters may ask for too) if it
    fits, then as many layers as fit, at equal distances, so that the disk has a layer's time to read the next.

    Raises `ConfigError` where the budget cannot even hold the buffers.
    """
    if sum(sizes) <= budget:
        return frozenset(range(len(sizes)))
    last = len(sizes) - 1
    for head in ({last}, set[int]()):
        for count in reversed(range(last + (not head))):
            spread = {i for i in range(last) if (i + 1) * count // last > i * count // last}
            if held_bytes(sizes, frozenset(spread | head)) <= budget:
                return frozenset(spread | head)
    least = min(held_bytes(sizes, frozenset()), held_bytes(sizes, frozenset({last})))
    raise ConfigError(
        f"weights_memory={budget} bytes is too little: two layers of this model (one in use, one being read) need "
        f"{least} bytes; give at least {-(-least // (1 << 20))}MiB"
    )


def held_bytes(sizes: Seq[int], resident: frozenset[int]) -> int:
    """What is in memory: the resident units and the two buffers."""
    streamed = [size for i, size in enumerate(sizes) if i not in resident]
    return sum(align(sizes[i]) for i in resident) + 2 * align(max(streamed, default=0))


class UnitReader:
    """The units of one file under a budget of bytes. One thread at a time may ask.

    `remake`: write the same file anew, which is done once where a unit is not what was written.
    """

    def __init__(
        self, file: DirectFile, units: Seq[Unit], budget: int, remake: Callable[[], None] | None = None
    ) -> None:
        self.file = file
        self._remake = remake
        self.units = tuple(units)
        sizes = [align(unit.size) for unit in units]
        self.resident = choose_resident(sizes, budget)
        self.held_bytes = held_bytes(sizes, self.resident)
        self.streamed = [i for i in range(len(units)) if i not in self.resident]
        self._checked: set[int] = set()
        self._kept = {i: MemoryBlock(sizes[i]) for i in sorted(self.resident)}
        for i, block in self._kept.items():
            self._read(i, block)
        largest = max((sizes[i] for i in self.streamed), default=0)
        self._free = [MemoryBlock(largest) for _ in range(2)] if self.streamed else []
        self._used: MemoryBlock | None = None
        self._ahead: tuple[int, MemoryBlock, Future[None]] | None = None
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outdraft-weights")

    def _renew(self) -> None:
        """In a forked process: the thread is not here, and what it was reading will never come."""
        self._start()
        self.file.renew()
        if self._ahead is not None:
            self._free.append(self._ahead[1])
            self._ahead = None

    @property
    def round_bytes(self) -> int:
        """What one round over all units reads from the file."""
        return sum(align(self.units[i].size) for i in self.streamed)

    def bring(self, index: int) -> int:
        """The address of a unit, valid until the next call; reading of the one that follows begins.

        Raises `ModelLoadError` where the file is damaged, `OSError` where it cannot be read.
        """
        if index in self._kept:
            return self._kept[index].address
        if self._process != os.getpid():
            self._renew()
        if self._used is not None:
            self._free.append(self._used)
            self._used = None
        if self._ahead is None or self._ahead[0] != index:
            self._forget_ahead()
            self._begin(index)
        assert self._ahead is not None
        _, block, reading = self._ahead
        self._ahead = None
        try:
            reading.result()
        except BaseException:
            self._free.append(block)
            raise
        self._used = block
        self._begin(self.streamed[(self.streamed.index(index) + 1) % len(self.streamed)])
        return block.address

    def _begin(self, index: int) -> None:
        block = self._free.pop()
        self._ahead = (index, block, self._thread.submit(self._read, index, block))

    def _forget_ahead(self) -> None:
        """A unit was read ahead that is not wanted now."""
        if self._ahead is not None:
            _, block, reading = self._ahead
            self._ahead = None
            reading.exception()
            self._free.append(block)

    def _read(self, index: int, block: MemoryBlock) -> None:
        try:
            self._read_checked(index, block)
        except ModelLoadError:
            if self._remake is None:
                raise
            self._remake()
            self.file.reopen()
            self._checked.clear()
            self._read_checked(index, block)

    def _read_checked(self, index: int, block: MemoryBlock) -> None:
        """A unit is checked when it is read first, and again until it was read when no program had just written."""
        unit = self.units[index]
        self.file.read_into(block.memory[: align(unit.size)], unit.offset)
        was_written = self.file.was_written()
        if was_written:
            self._checked.clear()
        if index not in self._checked:
            if checksum(block.address, unit.size) != unit.checksum:
                raise ModelLoadError(
                    f"{self.file.path} is damaged at byte {unit.offset}: delete it, and it will be made again "
                    "from the model"
                )
            if not was_written:  # else the bytes may have been read before the write, and the next ones after it
                self._checked.add(index)
