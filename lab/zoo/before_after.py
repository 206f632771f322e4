"""Two reports of the recipe kind "evaluate" beside each other, as Markdown: the zoo's target before and after.

python -m lab.zoo.before_after BEFORE/report.json OUT/evaluate/report.json
"""

import json
import sys
from pathlib import Path
from typing import Any


def tables(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Loss by source, and the share of greedy texts that loop."""
    lines = [
        "| held-out text | nats/token before | after | bits/byte before | after | 4-gram of 19.2 M tokens, nats |",
        "| --- " * 6 + "|",
    ]
    for name, old in before["losses"].items():
        new = after["losses"][name]
        cells = [
            f"{one[key]:.2f}" if key in one else ""
            for key in ("target_nats", "target_bits_per_byte")
            for one in (old, new)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} | {new['ngram_nats']:.2f} |")
    lines += ["", "| greedy texts of 128 tokens that loop | before | after |", "| --- " * 3 + "|"]
    lines += [f"| {name} | {old:.0%} | {after['looping'][name]:.0%} |" for name, old in before["looping"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(tables(*(json.loads(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:3])))
