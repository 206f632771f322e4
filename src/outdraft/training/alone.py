"""One process trains in a folder, or writes a file. Two would write over what the other wrote.

A launcher that is killed may leave its workers running, and with them the lock (`adapt/lock.py`): a run that resumes
finds them here.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import IO, Any

from outdraft.adapt.lock import lock
from outdraft.options.errors import ConfigError

_OLD = 60.0  # seconds: a worker of this run may be writing what is newer


@contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Hold the folder. Raises `ConfigError` where another process trains in it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / "lock").open("w") as held:
        if not lock(held):
            raise ConfigError(
                f"another process trains in {run_dir}: wait until it ends, or stop it (a launcher that was killed may "
                "have left its workers running)"
            )
        for left in run_dir.rglob("*.part-*"):  # what a run that was killed had not finished (`options/new_file.py`)
            with suppress(FileNotFoundError):  # a worker has finished it
                if time() - left.stat().st_mtime > _OLD:
                    left.unlink()
        yield


def hold(file: IO[Any], path: Path) -> None:
    """Hold an open file until it is closed. Raises `ConfigError` where another process writes it."""
    if not lock(file):
        raise ConfigError(f"another process writes {path}: wait until it ends, or name another file")
