"""The latest requests of a tenant, as ids, on disk: one process writes them, another one reads on where it stopped.

    requests/000004.jsonl   the oldest that are kept: a file goes as a whole, when it is old or too many are there
             000005.jsonl   grows; a line without its end (the process was killed) is not read, nor is it written on

A request's number is its file's times 1000 and its line's; it never changes, and is not given again.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, TextIO

_LINES = 64  # of a file
_NUMBERS = 1000
_FILE = re.compile(r"(\d{6})\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """One line: its number, and what was written."""

    number: int
    said: dict[str, Any]


class SpoolWriter:
    """Writes to a folder. `num_kept`: requests, at least; `seconds`: after which they are deleted."""

    def __init__(self, folder: Path, *, num_kept: int, seconds: float) -> None:
        self._folder, self._num_files, self._seconds = folder, -(-num_kept // _LINES) + 1, seconds
        self._file: TextIO | None = None
        self._lines = 0

    def put(self, said: dict[str, Any]) -> None:
        """Write one request. Raises `OSError`."""
        if self._file is None or self._lines >= _LINES:
            self._begin()
        assert self._file is not None
        self._file.write(json.dumps(said, separators=(",", ":")) + "\n")
        self._file.flush()
        self._lines += 1

    def clean(self) -> None:
        """Delete what is too old, and what is too much."""
        files = spool_files(self._folder)
        old = [one for one in files if one.stat().st_mtime < time() - self._seconds]
        for one in {*files[: -self._num_files], *old}:
            one.unlink(missing_ok=True)

    def close(self) -> None:
        """Write nothing more."""
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
        last.write_text(f"{number}\n", encoding="ascii")
        place = self._folder / f"{number:06d}.jsonl"
        self._file = os.fdopen(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8")
        self._lines = 0
        self.clean()


def spool_files(folder: Path) -> list[Path]:
    """Those that are there, oldest first."""
    with suppress(OSError):
        return sorted(one for one in folder.iterdir() if _FILE.fullmatch(one.name))
    return []


def read_spool(folder: Path, after: int = 0) -> Iterator[Spooled]:
    """Requests behind this number, oldest first. Lines that are no JSON are left out."""
    for path in spool_files(folder):
        begin = int(path.stem) * _NUMBERS
        if begin + _NUMBERS <= after:
            continue
        with suppress(FileNotFoundError):  # it was deleted meanwhile
            for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), 1):
                if begin + i > after and line.endswith("\n"):
                    with suppress(ValueError):
                        yield Spooled(number=begin + i, said=json.loads(line))
