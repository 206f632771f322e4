"""Rows to cells: all figures of one method on one suite (or one category, or all of them).

Seconds are taken per token of plain decoding's text, so that texts of unequal length (sampling without a seed) compare.
One statistic says how fast a method is: the median over rounds of plain seconds / own seconds of the same round. Its
tokens a second are plain decoding's (of the median round) times that.
A cell with a row that failed its identity check has no speed-up: a fast wrong text is no result.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from statistics import median

import numpy as np

from outdraft.analysis.bootstrap import Interval, Table, paired_ratio
from outdraft.analysis.lines import PLAIN
from outdraft.analysis.records import Records, Row

ALL = "all"
DEFAULT = "default"  # what drafts where nothing is named
GROUPINGS: dict[str, Callable[[Row], str]] = {"suite": lambda row: row.suite, "category": lambda row: row.category}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One method on one group of prompts."""

    method: str
    group: str
    num_prompts: int
    num_rounds: int
    lossless: bool  # False: under a rule that does not keep the target's distribution
    num_failed: int
    num_compared: int
    first_failure: str | None
    num_agreeing: int | None  # texts of another program that are plain decoding's to the end; None: a method of ours
    shortest_agreement: int | None  # and after how many tokens the earliest of the others parted
    speedup: Interval | None  # None: failed
    tokens_per_second: float
    tau: float | None  # None: a program that does not report it
    acceptance_rate: float
    acceptance_by_position: list[float]
    split: dict[str, float]  # shares of the time: draft, target, rest
    seconds_per_token: float
    first_token_seconds: float
    later_token_seconds: float | None  # per token after the first piece; None: there is nothing after it
    peak_bytes: dict[str, int]

    @property
    def failed(self) -> bool:
        """Whether any text was not plain decoding's."""
        return self.num_failed > 0


def summarise(records: Records, by: str = "suite") -> list[Cell]:
    """A cell for each method and group, and over all groups ("all"): of plain decoding, of the default, of others."""
    key = GROUPINGS[by]
    methods = sorted(records.methods, key=lambda method: (method != PLAIN, method != DEFAULT))
    groups = list(dict.fromkeys(key(row) for row in records.rows))
    cells: list[Cell] = []
    for method in methods:
        mine = [row for row in records.rows if row.method == method]
        for group in [ALL, *groups]:
            rows = [row for row in mine if group in (ALL, key(row))]
            if rows:
                plain = next((one for one in cells if (one.method, one.group) == (PLAIN, group)), None)
                cells.append(_cell(method, group, rows, plain))
    return cells


def seconds_table(rows: Seq[Row], *, plain: bool = False) -> Table:
    """Seconds by prompt and round, as if each text were as long as plain decoding's: [P, R]."""
    num_rounds = min(len(row.seconds) for row in rows)
    table = [
        row.plain_seconds[:num_rounds]
        if plain
        else [
            seconds * theirs / ours
            for seconds, ours, theirs in zip(row.seconds, row.tokens, row.plain_tokens, strict=True)
        ][:num_rounds]
        for row in rows
    ]
    return np.array(table, dtype=np.float64)


def _cell(method: str, group: str, rows: Seq[Row], plain: Cell | None) -> Cell:
    failures = [row for row in rows if row.identical is False]
    taken = seconds_table(rows)
    written = sum(row.plain_tokens[0] for row in rows)
    speedup = None if failures else paired_ratio(seconds_table(rows, plain=True), taken)
    # Of the plain cell, which stands in the same table; of other prompts than these, their own plain seconds.
    alike = plain if plain is not None and plain.num_prompts == len(rows) else None
    beside = (
        alike.seconds_per_token if alike else float(np.median(seconds_table(rows, plain=True).sum(axis=0))) / written
    )
    per_token = float(np.median(taken.sum(axis=0))) / written if speedup is None else beside / speedup.value
    parted = [row.agreement for row in rows if row.agreement is not None and row.agreement < row.plain_tokens[0]]
    steps = sum(row.num_steps for row in rows)
    accepted, rejections = sum(row.num_accepted_tokens for row in rows), sum(row.num_rejections for row in rows)
    split = {part: sum(row.split[part] for row in rows) for part in ("draft", "target", "rest")}
    whole = sum(split.values())
    return Cell(
        method=method,
        group=group,
        num_prompts=len(rows),
        num_rounds=taken.shape[1],
        lossless=rows[0].lossless,
        num_failed=len(failures),
        num_compared=sum(row.identical is not None for row in rows),
        first_failure=f"{failures[0].suite} {failures[0].prompt}: {failures[0].difference}" if failures else None,
        num_agreeing=len(rows) - len(parted) if rows[0].agreement is not None else None,
        shortest_agreement=min(parted, default=None),
        speedup=speedup,
        tokens_per_second=1 / per_token,
        tau=sum(row.num_tokens for row in rows) / steps if steps else None,
        acceptance_rate=accepted / (accepted + rejections) if accepted + rejections else 0.0,
        acceptance_by_position=_by_position(rows),
        split={part: seconds / whole for part, seconds in split.items()},
        seconds_per_token=per_token,
        first_token_seconds=median(seconds for row in rows for seconds in row.first_token_seconds),
        later_token_seconds=_later(rows),
        peak_bytes={key: max(row.peak_bytes[key] for row in rows) for key in rows[0].peak_bytes},
    )


def _later(rows: Seq[Row]) -> float | None:
    """Seconds of a token after the first piece, so without the prompt: all prompts together, of the median round."""
    by_round = []
    for number in range(min(len(row.seconds) for row in rows)):
        firsts = [row.num_first_tokens[number] if row.num_first_tokens else 1 for row in rows]
        tokens = sum(row.tokens[number] - first for row, first in zip(rows, firsts, strict=True))
        if tokens:
            by_round.append(sum(row.seconds[number] - row.first_token_seconds[number] for row in rows) / tokens)
    return median(by_round) if by_round else None


def _by_position(rows: Seq[Row]) -> list[float]:
    """P(accepted at i | examined at i)."""
    longest = max(len(row.reached) for row in rows)
    reached = [sum(row.reached[i] for row in rows if i < len(row.reached)) for i in range(longest)]
    rejected = [sum(row.rejected[i] for row in rows if i < len(row.rejected)) for i in range(longest)]
    return [1 - lost / seen for seen, lost in zip(reached, rejected, strict=True)]
