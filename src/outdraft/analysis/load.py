"""The lines of a load's record and what they come to: throughput, waiting times and gaps by method and clients.

A file may hold lines of several setups (model, machine, sampling, scheduling): those of the last line, or of the line
with the key that is given, are taken; and at each number of clients, those of the newest requests.

Data in: a path; data out: `LoadRecords`, `LoadCell`s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from outdraft.analysis.lines import PLAIN, Line, from_line, of_one_setup, read_lines
from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow(Line):
    """One method at one number of clients. `bench.load.row` says what the fields mean."""

    clients: int
    jobs: str  # a fingerprint of the requests of a round
    num_requests: int
    num_agreeing: int | None
    tau: float | None
    work_seconds: list[float] | None
    plain_work_seconds: list[float] | None
    first_token_seconds: list[list[float]]
    token_seconds: list[list[float]]
    gap_quantiles: list[Mapping[str, float]]
    engine: Mapping[str, Any] = field(default_factory=dict)  # how requests were scheduled, where that was said

    @property
    def setup(self) -> dict[str, Any]:
        """What must be equal for two lines to stand in one table: how requests are scheduled, too."""
        return {"model": self.model, "machine": self.machine, "sampling": self.sampling, "engine": self.engine}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecords:
    """What a file of `outdraft bench --load` holds of one setup."""

    path: Path
    rows: list[LoadRow] = field(default_factory=list)
    num_others: int = 0  # lines of other setups or requests in the same file

    @property
    def levels(self) -> list[int]:
        """The numbers of clients that were measured, rising."""
        return sorted({row.clients for row in self.rows})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCell:
    """One method at one number of clients. Seconds; a quantile is None where a round had nothing to take it of."""

    method: str
    clients: int
    num_requests: int
    tokens_per_second: float  # of all clients together, the median round's
    speedup: float | None  # over plain decoding's rate, the median over rounds; None: failed
    slowest: float | None  # the round with the least speed-up
    by_work: float | None  # the same as `speedup` by the processors' seconds; None: failed, or not known
    first_token: float  # median over the requests of all rounds
    first_token_p99: float
    gap: float | None  # between two pieces: the median over rounds of each round's median
    gap_p99: float | None
    token: float | None  # of a token after the first piece, median over the requests of all rounds
    tau: float | None
    identical: bool | None
    difference: str | None
    num_agreeing: int | None


def read_load(path: Path, like: str | None = None) -> LoadRecords:
    """Read a file's lines of a load; of lines of the same method and clients, the newest.

    Raises `ConfigError` naming the line that is no record, or that there is none.
    """
    rows = read_lines(path, lambda data: from_line(LoadRow, data) if data["kind"] == "load" else None)
    if not rows:
        raise ConfigError(
            f"{path} holds no finished load; measure one with `outdraft bench --load 1,4,16 --out {path}`"
        )
    alike = of_one_setup(rows, like)
    asked = {row.clients: row.jobs for row in alike}  # of the newest line
    alike = [row for row in alike if row.jobs == asked[row.clients]]
    chosen = {(row.method, row.clients): row for row in alike}
    return LoadRecords(path=path, rows=list(chosen.values()), num_others=len(rows) - len(alike))


def summarise_load(records: LoadRecords) -> list[LoadCell]:
    """A cell for each line: few clients first, plain decoding first among them."""
    ranked = sorted(records.rows, key=lambda row: (row.clients, row.method != PLAIN))
    return [_cell(row) for row in ranked]


def _cell(row: LoadRow) -> LoadCell:
    rates = [tokens / seconds for tokens, seconds in zip(row.tokens, row.seconds, strict=True)]
    plain = [tokens / seconds for tokens, seconds in zip(row.plain_tokens, row.plain_seconds, strict=True)]
    gains = [mine / theirs for mine, theirs in zip(rates, plain, strict=True)]
    firsts = [seconds for of in row.first_token_seconds for seconds in of]
    each = [seconds for of in row.token_seconds for seconds in of]
    failed = row.identical is False
    return LoadCell(
        method=row.method,
        clients=row.clients,
        num_requests=row.num_requests,
        tokens_per_second=median(rates),
        speedup=None if failed else median(gains),
        slowest=None if failed else min(gains),
        by_work=None if failed else _by_work(row),
        first_token=median(firsts),
        first_token_p99=float(np.quantile(firsts, 0.99)),
        gap=_middle(row, "0.5"),
        gap_p99=_middle(row, "0.99"),
        token=median(each) if each else None,
        tau=row.tau,
        identical=row.identical,
        difference=row.difference,
        num_agreeing=row.num_agreeing,
    )


def _by_work(row: LoadRow) -> float | None:
    """Plain decoding's processor seconds of a token over this method's; the median over rounds."""
    if row.work_seconds is None or row.plain_work_seconds is None:
        return None
    mine = [work / tokens for work, tokens in zip(row.work_seconds, row.tokens, strict=True)]
    plain = [work / tokens for work, tokens in zip(row.plain_work_seconds, row.plain_tokens, strict=True)]
    return median(theirs / max(own, 1e-12) for own, theirs in zip(mine, plain, strict=True))


def _middle(row: LoadRow, quantile: str) -> float | None:
    found = [of[quantile] for of in row.gap_quantiles if quantile in of]
    return median(found) if found else None
