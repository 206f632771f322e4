"""One process at a time, by a lock on a file, which goes with the process however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outdraft.options.errors import CapabilityError

try:
    import fcntl
except ImportError:  # Windows: the operator sees to it
    fcntl = None  # type: ignore[assignment]


@contextmanager
def one_at_a_time(place: Path, otherwise: str) -> Iterator[None]:
    """Raises `CapabilityError`, saying `otherwise`, where another process is inside."""
    handle = os.open(place, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise CapabilityError(otherwise) from error
        yield
    finally:
        os.close(handle)
