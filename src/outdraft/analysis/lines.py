"""The lines of record files of either kind: what all of them hold, and how a file of them is read.

A file is written line by line, so its last line may have been cut off; it may hold lines of several setups (model,
machine, sampling), and only those of one belong together. Data in: a path; data out: lines as dataclasses.
"""

import json
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from outdraft.options.errors import ConfigError

PLAIN = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One method, measured in rounds beside plain decoding; lists are by round."""

    key: str
    method: str
    identical: bool | None
    difference: str | None
    tokens: list[int]
    seconds: list[float]
    plain_tokens: list[int]
    plain_seconds: list[float]
    when: str
    load: float | None
    model: Mapping[str, Any]
    machine: Mapping[str, Any]
    config: Mapping[str, Any]
    sampling: Mapping[str, Any]

    @property
    def setup(self) -> dict[str, Any]:
        """What must be equal for two lines to stand in one table."""
        return {"model": self.model, "machine": self.machine, "sampling": self.sampling}


L = TypeVar("L", bound=Line)
T = TypeVar("T")


def from_line(kind: type[T], data: Mapping[str, Any]) -> T:
    """A dataclass of a line's keys; those that it does not have are left alone, and fields with a default may lack."""
    return kind(**{one.name: data[one.name] for one in fields(kind) if one.name in data})  # type: ignore[arg-type]


def read_lines(path: Path, make: Callable[[Mapping[str, Any]], T | None]) -> list[T]:
    """What `make` makes of each line, but for None.

    Raises `ConfigError` for a file that cannot be read, and for a line that is no record, naming it.
    """
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"records {path} cannot be read: {error}; give a file that `outdraft bench` wrote") from error
    made = []
    for number, line in enumerate(lines, 1):
        try:
            one = make(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break  # cut off while it was written
            raise ConfigError(f"{path}, line {number} is no record of `outdraft bench`: {error!r}") from error
        if one is not None:
            made.append(one)
    return made


def of_one_setup(rows: Seq[L], like: str | None) -> list[L]:
    """The rows whose setup is that of the row with key `like`, or of the last row. There must be a row."""
    setup = next((row.setup for row in rows if row.key == like), rows[-1].setup)
    return [row for row in rows if row.setup == setup]


def holds_kind(path: Path, kind: str) -> bool:
    """Whether a record file has lines of this kind, "row" or "load"; False where it cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return any(line.startswith(f'{{"kind": "{kind}"') for line in file)
    except (OSError, UnicodeDecodeError):
        return False
