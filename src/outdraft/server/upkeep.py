"""What a process that serves for days asks of Python and of the C library: short turns, and memory that goes back.

The C library keeps what was freed in the middle of its heaps, of which each thread may have one: what one request took
would stay with the process until it ends.
"""

import asyncio
import gc
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from outdraft.core.c_library import c_library

TURN = 0.0002  # seconds that a thread may keep Python's lock from the engine's; Python's own are 25 times as long
READERS = 2  # threads that read short bodies: more of them wait for each other
HEAPS = 2  # of the C library
EVERY = 2.0  # seconds between two looks at the memory
GROWTH = 16 << 20  # bytes beyond the last look's least, from which what is free is given back
_ARENA_MAX = -8  # the number of that setting, M_ARENA_MAX


def prepare() -> None:
    """Once, in the thread whose event loop serves."""
    sys.setswitchinterval(TURN)
    gc.collect()
    gc.freeze()  # a full collection then looks at what requests have made, and not at the model for a tenth of a second
    readers, all_there = ThreadPoolExecutor(READERS, "outdraft-texts"), Barrier(READERS)
    for _ in range(READERS):  # each takes one, so that all are there from now on and no later load adds any
        readers.submit(all_there.wait)
    asyncio.get_running_loop().set_default_executor(readers)
    if (library := c_library("mallopt")) is not None:
        library.mallopt(_ARENA_MAX, HEAPS)


async def give_back_for_ever() -> None:
    """Return what is free to the system whenever the process has grown. A system that cannot has nothing to do."""
    library, least = c_library("malloc_trim"), _resident()
    while library is not None and least:
        await asyncio.sleep(EVERY)
        if _resident() > least + GROWTH:
            await asyncio.to_thread(library.malloc_trim, 0)
            least = _resident()
        least = min(least, _resident())


def _resident() -> int:
    """Bytes of memory of this process; 0 where that cannot be read."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0
