"""The record of the trials, one line of JSON a mutant, and the score. A later line about a mutant counts.

    {"area": "verify", "key": "...", "file": "verify/block.py", "line": 40, "operator": "core/AddNot", "occurrence": 2,
     "text": "if children:", "verdict": "killed", "why": "a test fails"}

Verdicts: killed; survived; untested (no test runs the line); equivalent (with its reason in `why`: no run can differ).
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "record.jsonl"
GOALS = {"drafters": (200, 0.8)}  # mutants, least score
GOAL = (100, 0.9)
MOST_EQUIVALENT = 0.05


@dataclass(slots=True)
class Record:
    """What is known, by key."""

    path: Path = PATH
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            entry = json.loads(line)
            self.known[entry["key"]] = entry

    def add(self, entry: dict[str, Any]) -> None:
        """Write it down at once."""
        self.known[entry["key"]] = entry
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def rewrite(self) -> None:
        """One line a mutant, ordered."""
        entries = sorted(self.known.values(), key=lambda one: (one["area"], one["key"]))
        self.path.write_text("".join(json.dumps(one) + "\n" for one in entries), "utf-8")

    def forget(self, area: str, wanted: set[str]) -> None:
        """Of an area keep these keys only: the source has changed, and others are no longer in the sample."""
        self.known = {key: one for key, one in self.known.items() if one["area"] != area or key in wanted}

    def of(self, area: str) -> list[dict[str, Any]]:
        """What was tried of an area."""
        return [one for one in self.known.values() if one["area"] == area]


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, "Probable inference", 1927, https://doi.org/10.2307/2276774)."""
    if not trials:
        return 0.0, 1.0
    share, unit = successes / trials, z * z / trials
    middle = (share + unit / 2) / (1 + unit)
    half = z * sqrt(share * (1 - share) / trials + unit / trials / 4) / (1 + unit)
    return max(0.0, middle - half), min(1.0, middle + half)


def score(entries: list[dict[str, Any]]) -> str:
    """A line for a reader: equivalent mutants are left out of the score, and counted."""
    counts = Counter(one["verdict"] for one in entries)
    judged = len(entries) - counts["equivalent"]
    low, high = wilson(counts["killed"], judged)
    share = counts["killed"] / judged if judged else 0.0
    return (
        f"{counts['killed']} of {judged} killed, {share:.0%} (95 %: {low:.0%} to {high:.0%}); survived "
        f"{counts['survived']}, untested {counts['untested']}, equivalent {counts['equivalent']}"
    )
