"""What drafters gain on a real model: `measured.json` beside this file, which lab/smollm2/measure_methods.py writes.

    {"target", "made", "machine", "command", "sets": [...], "rows": {drafter: {set: {"tau", "speedup"}}}}

`tau` is tokens a pass of the target, `speedup` the median of plain seconds / its own. A drafter whose text was another
one than plain decoding's has no row.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("measured.json")
Rows = Mapping[str, Mapping[str, float]]


@cache
def read_measured() -> Mapping[str, Any]:
    """What the file says, read once."""
    return json.loads(FILE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def gains(drafter: str) -> Rows:
    """Set of prompts -> `tau` and `speedup`; empty where nothing was measured."""
    return read_measured()["rows"].get(drafter, {})  # type: ignore[no-any-return]


def in_words(rows: Rows) -> str:
    """All sets, best first: "1.48x GSM8K, 1.21x HumanEval"."""
    best = sorted(rows.items(), key=lambda row: -row[1]["speedup"])
    return ", ".join(f"{row['speedup']:.2f}x {name}" for name, row in best)
