"""The lines of a record file, as far as the analysis reads them; unknown keys are left alone.

A file may hold rows of several setups (model, machine, sampling): those of one are taken, so that nothing is mixed; of
rows that stand there twice, the newer.
Data in: a path; data out: `Records`: rows (one method on one prompt each), and the cost curve if it was measured.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from outdraft.core.errors import ConfigError

PLAIN = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One method on one prompt; lists by round, and by position in the draft (from 1)."""

    key: str
    suite: str
    category: str
    prompt: str
    method: str
    identical: bool | None
    difference: str | None
    num_tokens: int
    num_steps: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_rejections: int
    reached: list[int]
    rejected: list[int]
    tokens: list[int]
    seconds: list[float]
    first_token_seconds: list[float]
    plain_tokens: list[int]
    plain_seconds: list[float]
    joules: list[float] | None
    split: Mapping[str, float]
    peak_bytes: Mapping[str, int]
    when: str
    load: float | None
    model: Mapping[str, Any]
    machine: Mapping[str, Any]
    config: Mapping[str, Any]
    sampling: Mapping[str, Any]
    agreement: int | None = None  # of another program: tokens before its first difference from plain decoding
    num_first_tokens: list[int] | None = None  # by round; older files: one each

    @property
    def lossless(self) -> bool:
        """What the rule said of itself; other programs and older files say nothing."""
        return bool(self.config.get("verifier", {}).get("lossless", True))

    @property
    def setup(self) -> dict[str, Any]:
        """What rows must share to stand in one table. A prompt's own stop strings do not count."""
        shared = ("dtype", "device", "exact", "max_model_len", "kv_cache", "kv_cache_dtype")
        engine = {name: self.config.get(name) for name in shared}
        sampling = {name: value for name, value in self.sampling.items() if name != "stop"}
        return {"model": self.model, "machine": self.machine, "engine": engine, "sampling": sampling}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Seconds of one target pass by its rows; see `bench.curve` for the other figures."""

    past: int
    rows: list[int]
    seconds: list[float]
    weight_bytes: int
    kv_bytes: int
    flops: int
    bandwidth: float
    peak_flops: float

    def pass_cost(self, rows: float) -> float:
        """Passes of one row that a pass of `rows` costs; a straight line between measured points."""
        place = bisect_left(self.rows, rows)
        if place == 0 or place == len(self.rows):
            return self.seconds[min(place, len(self.rows) - 1)] / self.seconds[0]
        left, right = self.rows[place - 1], self.rows[place]
        share = (rows - left) / (right - left)
        return (self.seconds[place - 1] * (1 - share) + self.seconds[place] * share) / self.seconds[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What one file of bench records holds."""

    path: Path
    rows: list[Row] = field(default_factory=list)
    curve: Curve | None = None
    num_others: int = 0  # rows of other setups in the same file

    @property
    def methods(self) -> list[str]:
        """Labels in the order in which they were first measured."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def suites(self) -> list[str]:
        return list(dict.fromkeys(row.suite for row in self.rows))


def holds_rows(path: Path) -> bool:
    """Whether a record file has rows of texts that were written one by one; False where it cannot be read."""
    return holds_kind(path, "row")


def holds_kind(path: Path, kind: str) -> bool:
    """Whether a record file has lines of this kind; False where it cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return any(line.startswith(f'{{"kind": "{kind}"') for line in file)
    except (OSError, UnicodeDecodeError):
        return False


def read_records(path: Path, like: str | None = None) -> Records:
    """Read a file: the rows whose setup is that of the row with key `like`, or of the last row.

    Raises `ConfigError` naming the line that is no record, or that the file is empty.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"records {path} cannot be read: {error}; give a file that `outdraft bench` wrote") from error
    rows: list[Row] = []
    curves: list[tuple[Any, Curve]] = []
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            if data["kind"] == "row":
                rows.append(Row(**{one.name: data[one.name] for one in fields(Row) if one.name in data}))
            elif data["kind"] == "curve":
                curve = Curve(**{one.name: data[one.name] for one in fields(Curve)})
                curves.append((data.get("model"), curve))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break  # cut off while it was written
            raise ConfigError(f"{path}, line {number} is no record of `outdraft bench`: {error!r}") from error
    if not rows:
        raise ConfigError(f"{path} holds no finished row; measure some with `outdraft bench --out {path}`")
    setup = next((row.setup for row in rows if row.key == like), rows[-1].setup)
    chosen = {(row.method, row.suite, row.prompt): row for row in rows if row.setup == setup}
    return Records(
        path=path,
        rows=list(chosen.values()),
        curve=next((curve for model, curve in reversed(curves) if model == setup["model"]), None),
        num_others=sum(row.setup != setup for row in rows),
    )
