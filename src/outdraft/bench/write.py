"""The record file: JSON lines, written as they are measured, so that an interrupted run goes on where it stopped.

Every line has a `key`, a fingerprint of what was measured on what; a key that is there is not measured again. A line
that was cut off by a kill is dropped; any other damage is an error.
"""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from outdraft.bench.machine import load_average
from outdraft.options.errors import ConfigError


def as_record(kind: str, row: Any, **more: Any) -> dict[str, Any]:
    """A line for a journal: a row (a dataclass) as plain data, with `more`, which the whole run has in common."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"kind": kind, **asdict(row), "when": now, "load": load_average(), **more}


class RecordFile:
    """Appends to `path`, which may exist; `keys` are those of its lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: set[str] = set()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                self._recover()
            self._file = path.open("a", encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it holds no text"
            raise ConfigError(f"records cannot be written to {path}: {reason}; choose another --out") from error
        self.num_found = len(self.keys)

    def append(self, record: dict[str, Any]) -> None:
        """One line, on the disk when this returns."""
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._file.flush()
        self.keys.add(str(record["key"]))

    def __enter__(self) -> "RecordFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _recover(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        for number, line in enumerate(whole.split("\n")[:-1], 1):
            try:
                self.keys.add(str(json.loads(line)["key"]))
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{self.path}, line {number} is no record of outdraft bench: choose another file with --out"
                ) from error
        if whole != text:
            self.path.write_text(whole, encoding="utf-8")
