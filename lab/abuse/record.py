"""The record of a run: JSON lines, of which the first says which source was measured and how.

A run that goes on reads what stands there and does not do it again. The record of another source is refused.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.source import digest_source
from outdraft.options.errors import ConfigError


class Record:
    """`settings`: what a line of it depends on, besides the source."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path = path
        head = {"source": digest_source(), **settings}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1] or json.dumps(head) + "\n"
        if whole != text:  # it is new, or the process ended in the middle of a line
            path.write_text(whole, encoding="utf-8")
        first, *self.rows = [json.loads(line) for line in whole.splitlines()]
        if first != json.loads(json.dumps(head)):
            raise ConfigError(f"{path} is the record of {first}, this is {head}: take another file, or remove it")

    def add(self, row: Mapping[str, Any]) -> None:
        """One more line, on the disk when this returns."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(dict(row))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a record but the first."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
