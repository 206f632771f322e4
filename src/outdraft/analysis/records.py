"""The lines of a record file, as far as the analysis reads them; unknown keys are left alone.

A file may hold rows of several setups (model, machine, sampling): those of one are taken, so that nothing is mixed; of
rows that stand there twice, the newer.
Data in: a path; data out: `Records`: rows (one method on one prompt each), and the cost curve if it was measured.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outdraft.analysis.lines import Line, from_line, of_one_setup, read_lines
from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Line):
    """One method on one prompt; `reached` and `rejected` are by position in the draft (from 1)."""

    suite: str
    category: str
    prompt: str
    num_tokens: int
    num_steps: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_rejections: int
    reached: list[int]
    rejected: list[int]
    first_token_seconds: list[float]
    split: Mapping[str, float]
    peak_bytes: Mapping[str, int]
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
class PassCurve:
    """Seconds of one pass of `rows[i]` rows over `past` cached ones, and what such a pass moves and multiplies."""

    past: int
    rows: list[int]
    seconds: list[float]  # median
    weight_bytes: int  # read once a pass
    kv_bytes: int  # of one cached token
    flops: int  # of one row, attention to the past included
    bandwidth: float  # bytes a second that the machine reads
    peak_flops: float  # operations a second in dot products of the model's number format

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
    curve: PassCurve | None = None
    num_others: int = 0  # rows of other setups in the same file

    @property
    def methods(self) -> list[str]:
        """Labels in the order in which they were first measured."""
        return list(dict.fromkeys(row.method for row in self.rows))


def read_records(path: Path, like: str | None = None) -> Records:
    """Read a file: the rows whose setup is that of the row with key `like`, or of the last row.

    Raises `ConfigError` naming the line that is no record, or that the file is empty.
    """
    lines = read_lines(path, _made)
    rows = [line for line in lines if isinstance(line, Row)]
    if not rows:
        raise ConfigError(f"{path} holds no finished row; measure some with `outdraft bench --out {path}`")
    alike = of_one_setup(rows, like)
    model = alike[-1].model
    curves = [line.curve for line in lines if isinstance(line, _CurveLine) and line.model == model]
    chosen = {(row.method, row.suite, row.prompt): row for row in alike}
    return Records(
        path=path, rows=list(chosen.values()), curve=curves[-1] if curves else None, num_others=len(rows) - len(alike)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CurveLine:
    model: Any  # None in older files
    curve: PassCurve


def _made(data: Mapping[str, Any]) -> Row | _CurveLine | None:
    if data["kind"] == "row":
        return from_line(Row, data)
    if data["kind"] == "curve":
        return _CurveLine(model=data.get("model"), curve=from_line(PassCurve, data))
    return None
