"""Write a file under a temporary name and rename it when it is complete, so that a failure leaves no partial file.

out.bin.part-1234-0   grows        ->   out.bin   with the mode that `open` would have given it
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from outdraft.options.errors import ConfigError, OutdraftError

_numbers = count()


@contextmanager
def new_file(path: str | Path, *, error: type[OutdraftError] = ConfigError) -> Iterator[Path]:
    """Where to write what is to stand at `path`, which may exist; a file that is empty stands there already.

    Raises `error` where `path` is no regular file (a device, a pipe, a directory), and for whatever the operating
    system refuses inside the block: the disk is full, the place cannot be written to.
    """
    place = require_regular(path, error=error)
    beside = place.with_name(f"{place.name}.part-{os.getpid()}-{next(_numbers)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        beside.open("xb").close()
        mode = beside.stat().st_mode
        try:
            yield beside
            beside.chmod(mode)  # some libraries write files that no other user may read
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as reason:
        raise error(f"{path} cannot be written: {reason}; choose another path, or free space there") from reason


def require_regular(path: str | Path, *, error: type[OutdraftError] = ConfigError) -> Path:
    """What `path` points to, if that is a regular file or not there yet. Raises `error` for anything else."""
    place = Path(os.path.realpath(path))
    if place.exists() and not stat.S_ISREG(place.stat().st_mode):
        kind = "a directory" if place.is_dir() else "a device or a pipe"
        raise error(f"{path} is {kind}, and no regular file that could be replaced: name another path")
    return place
