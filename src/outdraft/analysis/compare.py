"""Two record files, the same prompts and methods in both: what became faster, slower, or stayed within the noise.

Only prompts that both have are compared. The verdict is of tokens a second; the speed-ups stand beside it, because
plain decoding of the same run cancels a machine that was busier on one of the two days.
"""

from dataclasses import dataclass

import numpy as np

from outdraft.analysis.bootstrap import Interval, Table, median_ratio, paired_ratio
from outdraft.analysis.records import Records, Row
from outdraft.analysis.sheet import Sheet
from outdraft.analysis.summary import ALL, seconds_table
from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One method on one suite. `speed`: tokens a second of the second file / of the first."""

    method: str
    suite: str
    num_prompts: int
    before_tps: float
    after_tps: float
    speed: Interval
    before_speedup: float
    after_speedup: float
    failed: bool

    @property
    def verdict(self) -> str:
        if self.failed:
            return "FAILED"
        if not self.speed.excludes(1.0):
            return "same"
        return "faster" if self.speed.value > 1 else "slower"


def compare(before: Records, after: Records) -> list[Change]:
    """A change for each method and suite in both; raises `ConfigError` if the files have no prompt in common."""
    old, new = _by_place(before), _by_place(after)
    both = [place for place in new if place in old]
    if not both:
        raise ConfigError(
            f"{before.path} and {after.path} have no method and prompt in common: bench the same suites and methods"
        )
    changes = []
    for method in dict.fromkeys(place[0] for place in both):
        mine = [place for place in both if place[0] == method]
        suites = list(dict.fromkeys(place[1] for place in mine))
        for suite in suites if len(suites) == 1 else [ALL, *suites]:
            chosen = [place for place in mine if suite in (ALL, place[1])]
            changes.append(_change(method, suite, [old[p] for p in chosen], [new[p] for p in chosen]))
    return changes


def compare_sheet(before: Records, after: Records) -> Sheet:
    """As a table, with a note for everything else that changed."""
    rows = [
        [
            change.method,
            change.suite,
            f"{change.before_tps:.0f}",
            f"{change.after_tps:.0f}",
            f"{change.speed.value:.2f}x",
            f"{change.speed.low:.2f}-{change.speed.high:.2f}",
            f"{change.before_speedup:.2f}x",
            f"{change.after_speedup:.2f}x",
            change.verdict,
        ]
        for change in compare(before, after)
    ]
    columns = ["method", "suite", "tokens/s\nbefore", "after", "change", "95 %", "speed-up\nbefore", "after", "verdict"]
    title = f"{before.path.name} -> {after.path.name}"
    return Sheet(title=title, columns=columns, rows=rows, notes=tuple(_other_changes(before, after)))


def _by_place(records: Records) -> dict[tuple[str, str, str], Row]:
    return {(row.method, row.suite, row.prompt): row for row in records.rows}


def _change(method: str, suite: str, old: list[Row], new: list[Row]) -> Change:
    tables = [seconds_table(rows) for rows in (old, new)]
    plain = [seconds_table(rows, plain=True) for rows in (old, new)]
    speedups = [paired_ratio(theirs, ours).value for theirs, ours in zip(plain, tables, strict=True)]
    tokens = [sum(row.plain_tokens[0] for row in rows) for rows in (old, new)]
    ratio = median_ratio(tables[0] / tokens[0], tables[1] / tokens[1])
    tps = [count / _total(table) for count, table in zip(tokens, tables, strict=True)]
    return Change(
        method=method,
        suite=suite,
        num_prompts=len(old),
        before_tps=tps[0],
        after_tps=tps[1],
        speed=ratio,
        before_speedup=speedups[0],
        after_speedup=speedups[1],
        failed=any(row.identical is False for row in new),
    )


def _total(table: Table) -> float:
    """Seconds of all prompts in the median round."""
    return float(np.median(table.sum(axis=0)))


def _other_changes(before: Records, after: Records) -> list[str]:
    """Whatever of model, machine, engine and sampling is not the same."""
    notes, setup = [], after.rows[0].setup
    for what, old in before.rows[0].setup.items():
        new = setup[what]
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                notes.append(f"{what} {key}: {old.get(key)} -> {new.get(key)}")
    gone = [method for method in before.methods if method not in after.methods]
    came = [method for method in after.methods if method not in before.methods]
    notes += [f"only in the first: {', '.join(gone)}"] if gone else []
    notes += [f"only in the second: {', '.join(came)}"] if came else []
    return notes
