"""The latest requests of a tenant, as ids, on disk: engines write them, the learner reads on where it stopped.

    requests/000004.jsonl   the oldest that are kept: a file goes as a whole, when it is old or too many are there
             000005.jsonl   grows; a line without its end (the process was killed) is not read, nor is it written on
             000006.jsonl   grows, too: each engine that shares the room has a file of its own

A file's number is not given again.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, TextIO

_LINES = 64  # of a file
_DAY = 86400.0  # seconds after which a file is not written on
_FILE = re.compile(r"\d{6,}\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """One line of a file, the first is 1, and what was written."""

    file: str
    line: int
    said: dict[str, Any]


class SpoolWriter:
    """Writes to a folder. `num_kept`: requests, at least; `seconds`: after which they are deleted, a day later."""

    def __init__(self, folder: Path, *, num_kept: int, seconds: float) -> None:
        self._folder, self._num_kept, self._seconds = folder, num_kept, seconds
        self._file: TextIO | None = None
        self._lines, self._began = 0, 0.0

    def put(self, said: dict[str, Any]) -> None:
        """Write one request. Raises `OSError`."""
        if (
            self._file is None
            or self._lines >= _LINES
            or time() - self._began >= _DAY
            or os.fstat(self._file.fileno()).st_nlink == 0
        ):
            self._begin()
        assert self._file is not None
        self._file.write(json.dumps(said, separators=(",", ":")) + "\n")
        self._file.flush()
        self._lines += 1

    def clean(self) -> None:
        """Delete what is too old, and what is too much."""
        clean_spool(self._folder, num_kept=self._num_kept, seconds=self._seconds)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _begin(self) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        last = self._folder / "last"  # a number is not given again when its file is gone
        known = [int(one.stem) for one in spool_files(self._folder)]
        with suppress(OSError, ValueError):
            known.append(int(last.read_text(encoding="ascii")))
        number = max(known, default=0) + 1
        while (handle := _made(self._folder / f"{number:06d}.jsonl")) is None:
            number += 1
        last.write_text(f"{number}\n", encoding="ascii")
        self._file, self._lines, self._began = os.fdopen(handle, "w", encoding="utf-8"), 0, time()
        self.clean()


def clean_spool(folder: Path, *, num_kept: int, seconds: float) -> None:
    """Delete files whose latest request is too old, and those behind which so many requests are kept."""
    kept = 0
    for one in reversed(spool_files(folder)):
        with suppress(FileNotFoundError):  # another engine deletes, too
            if kept >= num_kept or one.stat().st_mtime < time() - seconds:
                one.unlink()
            else:
                kept += one.read_bytes().count(b"\n")


def spool_files(folder: Path) -> list[Path]:
    """Those that are there, oldest first."""
    with suppress(OSError):
        return sorted((one for one in folder.iterdir() if _FILE.fullmatch(one.name)), key=lambda one: int(one.stem))
    return []


def read_spool(folder: Path, seen: Mapping[str, int] | None = None) -> Iterator[Spooled]:
    """Requests, oldest first. `seen`: lines of each file that are left out. Lines that are no JSON are, too."""
    for path in spool_files(folder):
        first = (seen or {}).get(path.stem, 0)
        if first >= _LINES:
            continue
        with suppress(FileNotFoundError):  # it was deleted meanwhile
            for i, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True), 1):
                if i > first and line.endswith("\n"):
                    with suppress(ValueError):
                        yield Spooled(file=path.stem, line=i, said=json.loads(line))


def _made(place: Path) -> int | None:
    """A new file, or None where another process has just made it."""
    try:
        return os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return None
