"""Finished rows of the matrix on disk, so that an interrupted run goes on, and what did not change is not run again.

    {"key": "3f0c9a...", "recipe": "eagle", "cells": {...}, "seen": {...}, "told": {...}, "trained": true, ...}

A row depends on its recipe, on the package below the commands (its source and its native kernels), on the contract
suite's rows, on the zoo's weights where a trained head is on the bench, and on PyTorch: `key` is a digest of all of
them. A row with a failure is not kept.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import torch

import outdraft
from lab.conformance.matrix import Line
from lab.conformance.tally import Tally
from outdraft import zoo
from outdraft.engine.naming.recipe import Recipe
from outdraft.weights.digest import digest_weights

ABOVE = ("cli", "server", "bench", "analysis")  # nothing that a row runs


class Record:
    """Rows by recipe. `tests`: the checkout's tests, which hold the contract suite's rows; `path`: JSON lines."""

    def __init__(self, path: Path, tests: Path) -> None:
        self.path = path
        self._source = _digest_of(Path(outdraft.__file__).parent, tests)
        self._lines: dict[str, dict[str, object]] = {}
        if path.exists():
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]
            if whole != text:  # the last line is a half one
                path.write_text(whole, encoding="utf-8")
            for row in map(json.loads, whole.splitlines()):
                self._lines[row["key"]] = row

    def find(self, recipe: Recipe) -> Line | None:
        """What this recipe came to with all that it depends on as it is now."""
        row = self._lines.get(self.key_of(recipe))
        return None if row is None else _line(recipe, row)

    def keep(self, line: Line) -> None:
        """Append a finished row; one with a failure is left out."""
        if line.failures:
            return
        row = {
            "key": self.key_of(line.recipe),
            "recipe": line.recipe.name,
            "cells": line.cells,
            "told": line.told,
            "seen": {heading: asdict(tally) for heading, tally in line.seen.items()},
            "trained": line.trained,
            "seconds": round(line.seconds, 1),
        }
        self._lines[str(row["key"])] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")

    def key_of(self, recipe: Recipe) -> str:
        """The digest of what its row depends on."""
        return hashlib.sha256(f"{self._source}\n{recipe!r}".encode()).hexdigest()[:20]


def _line(recipe: Recipe, row: Mapping[str, object]) -> Line:
    rest = {name: row[name] for name in ("cells", "told", "trained", "seconds")}
    seen = {heading: Tally(**tally) for heading, tally in row["seen"].items()}  # type: ignore[attr-defined]
    return Line(recipe=recipe, seen=seen, **rest)  # type: ignore[arg-type]


def _digest_of(package: Path, tests: Path) -> str:
    told = hashlib.sha256(f"{torch.__version__}\n".encode())
    for path in sorted([*_files(package), *(tests / "contracts").rglob("*.py")]):
        told.update(f"{path.name}\n".encode() + path.read_bytes())
    for name in zoo.names():
        told.update(f"{name} {digest_weights(zoo.path(name))}\n".encode())
    return told.hexdigest()


def _files(package: Path) -> Iterator[Path]:
    for pattern in ("*.py", "*.so"):
        for path in package.rglob(pattern):
            if path.relative_to(package).parts[0] not in ABOVE:
                yield path
