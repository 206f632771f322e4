"""One process at a time, by the operating system's lock on a file, which goes with the process however it ends.

Where there are no locks, on Windows and on some network file systems, no process is kept out.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from outdraft.options.errors import CapabilityError


@contextmanager
def one_at_a_time(place: Path, otherwise: str) -> Iterator[None]:
    """Raises `CapabilityError`, saying `otherwise`, where another process is inside."""
    with os.fdopen(os.open(place, os.O_CREAT | os.O_RDWR, 0o600)) as file:
        if not lock(file):
            raise CapabilityError(otherwise)
        yield


def lock(file: IO[Any]) -> bool:
    """Until the file is closed. False: another process has it."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True
