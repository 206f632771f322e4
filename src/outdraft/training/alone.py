"""One process trains in a folder. Two would write each other's checkpoints over.

The lock is the operating system's and ends with its process, however that ends. A launcher that is killed may leave its
workers running: they are found here by whoever resumes the run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from outdraft.core.errors import ConfigError


@contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Hold the folder. Raises `ConfigError` where another process trains in it; no lock where the system has none."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / "lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another process trains in {run_dir}: wait until it ends, or stop it (a launcher that was killed may "
                "have left its workers running)"
            ) from error
        yield


@contextmanager
def alone_with(file: IO[Any], path: Path) -> Iterator[None]:
    """Hold an open file that answers are appended to, until it is closed. Raises `ConfigError` where another does."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(f"another process writes {path}: wait until it ends, or name another file") from error
    except OSError:  # a file system without locks
        pass
    yield


@contextmanager
def mine(lock: Path, *, waits: bool) -> Iterator[bool]:
    """Hold a file that says "this is being done". False: another process holds it; `waits`: until it lets go."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield True
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
