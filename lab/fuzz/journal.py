"""The record of a fuzz run: a line of JSON for the run, then one a case; read again, the run goes on where it stopped.

    {"seed": 0, "plant": null, "rows": 71, "source": "d2c1..."}
    {"case": 0, "kind": "greedy", "model": "qwen3/wide/2", "texts": 3, ..., "difference": null}

`Totals` adds up what is required of a whole run, each share of it in proportion to the number of texts.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.fuzz.models import ZOO
from lab.fuzz.plan import GREEDY, PLAIN, SEEDED, VARIANTS
from lab.fuzz.run import Record
from outdraft.options.errors import ConfigError

SHARES = {GREEDY: 0.30, SEEDED: 0.05, ZOO: 0.20}  # at least, of all texts
ACCEPTED = 50  # tokens at least, of every drafter that guesses
WHOLE_RUN = 10_000  # texts; a run of fewer is not asked for every drafter and variant


class Journal:
    """Records on disk, or in memory where there is no path. Raises `ConfigError` if the file is of another run."""

    def __init__(self, path: Path | None, head: dict[str, Any]) -> None:
        self.records: dict[int, Record] = {}
        self._path = path
        if path is None:
            return
        lines = [line for line in (path.read_text("utf-8").splitlines() if path.exists() else []) if _is_whole(line)]
        if lines and json.loads(lines[0]) != head:
            raise ConfigError(f"{path} is the record of another run ({lines[0]}): take another file, or remove it")
        self.records = {record.case: record for record in (Record(**json.loads(line)) for line in lines[1:])}
        path.write_text("".join(line + "\n" for line in lines or [json.dumps(head)]), "utf-8")

    def add(self, record: Record) -> None:
        """Append the record to the file at once, so that an interrupted run keeps it."""
        self.records[record.case] = record
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(record)) + "\n")


def _is_whole(line: str) -> bool:
    """A line that was cut by the end of a process is done again."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@dataclass(slots=True)
class Totals:
    """Sums over the records of a run."""

    texts: Counter[str] = field(default_factory=Counter)  # by kind; "zoo" and "all" beside them
    variants: Counter[str] = field(default_factory=Counter)  # texts
    accepted: Counter[str] = field(default_factory=Counter)  # tokens, by drafter
    tokens: int = 0
    ties: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # cases that no way of building the drafter suited
    differing: list[Record] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Totals":
        totals = cls()
        for one in records:
            for name in ("all", one.kind, *([ZOO] if one.model.startswith(ZOO) else [])):
                totals.texts[name] += one.texts
            totals.variants[one.variant if one.kind == PLAIN else one.kind] += one.texts
            totals.accepted[one.drafter] += one.accepted
            totals.refused[f"{one.drafter} on {one.variant}"] += not one.texts and one.difference is None
            totals.tokens += one.tokens
            totals.ties += one.ties
            totals.differing += [one] if one.difference is not None else []
        return totals

    def missing(self, drafters: Seq[str]) -> Iterator[str]:
        """What the run has not shown."""
        for name, share in SHARES.items():
            least = int(share * self.texts["all"])
            if self.texts[name] < least:
                yield f"{self.texts[name]} texts of {name!r}, at least {least} are wanted"
        if self.texts["all"] < WHOLE_RUN:
            return
        for drafter in drafters:
            if self.accepted[drafter] < ACCEPTED:
                yield f"{drafter}: {self.accepted[drafter]} accepted tokens, at least {ACCEPTED} are wanted"
        for variant in VARIANTS:
            if not self.variants[variant]:
                yield f"no text of variant {variant!r}"

    def tell(self) -> str:
        """A few lines for a reader."""
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.texts.items()) if name != "all")
        variants = ", ".join(f"{name} {count}" for name, count in sorted(self.variants.items()))
        accepted = ", ".join(f"{name} {count}" for name, count in sorted(self.accepted.items()))
        refused = ", ".join(f"{name} {count}" for name, count in sorted(self.refused.items()) if count)
        return (
            f"{self.texts['all']} texts, {self.tokens} tokens: {len(self.differing)} differences, {self.ties} ties of "
            f"rounding\n  by kind: {kinds}\n  by variant: {variants}\n  accepted tokens: {accepted}\n"
            f"  refused: {refused or 'nothing'}\n"
        )
