"""The tables of docs/training.md from the records of `equal_data.py` and `equal_engine.py`: two, as Markdown.

python -m lab.smollm2.equal_table [DIR]

DIR, or lab/smollm2/equal, has KIND.json, KIND.seed1.json, KIND.engine.json, KIND.bf16.json. Where a kind has records
of other seeds, tokens a pass are the mean over seeds, with its standard error.
"""

import json
import sys
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from lab.smollm2.measure_methods import SETS

HERE = Path(__file__).with_name("equal")
HEAD = ("kind", "parameters", "a step", "accepted if reached, 1 to 7, greedy", "tokens a pass, greedy", "T = 1")


def main() -> int:
    """Both, the best kind first."""
    place = Path(sys.argv[1]) if sys.argv[1:] else HERE
    found = [read(path) for path in sorted(place.glob("*.json")) if "." not in path.stem]
    found.sort(key=lambda one: -one["greedy"]["tau"])
    write(*HEAD)
    write(*["---"] * len(HEAD))
    for one in found:
        others = [read(path) for path in sorted(place.glob(f"{one['kind']}.seed*.json")) if path.stem.count(".") == 1]
        rates = ", ".join(f"{rate:.2f}" for rate in one["greedy"]["conditional"])
        size = f"{one['parameters'] / 1e6:.1f} M"
        write(
            one["kind"],
            size,
            f"{one['step_seconds']:.2f} s" if "step_seconds" in one else "",
            rates,
            *(tau([each[exam] for each in (one, *others)]) for exam in ("greedy", "sampled")),
        )
    write("\nkind", "", *SETS)
    write(*["---"] * (2 + len(SETS)))
    for name in [one["kind"] for one in found]:
        path = place / f"{name}.engine.json"
        if not path.exists():
            continue
        engine, floats = read(path), place / f"{name}.bf16.json"
        for temperature in next(iter(engine["tau"].values())):
            shapes = [engine["tau"][shape][temperature] for shape in ("chain", "tree") if shape in engine["tau"]]
            cells = [" / ".join(f"{shape[one][0]:.2f}" for shape in shapes) for one in SETS]
            write(name if temperature == "0" else "", f"T = {temperature}", *cells)
        write(
            "",
            f"times plain; share {engine['drafting share']:.0%}",
            *(f"{engine['speedup'][one]:.2f}x" for one in SETS),
        )
        if floats.exists():
            write("", "the same, in bfloat16", *(f"{read(floats)['speedup'][one]:.2f}x" for one in SETS))
    return 0


def read(path: Path) -> dict[str, Any]:
    """A record."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def tau(exams: Seq[Mapping[str, float]]) -> str:
    """Tokens a pass, with their standard error: over texts, or over seeds."""
    values = [one["tau"] for one in exams]
    if len(values) == 1:
        return f"{values[0]:.2f} ± {exams[0]['standard_error']:.2f}"
    return f"{mean(values):.3f} ± {stdev(values) / len(values) ** 0.5:.3f} ({len(values)} seeds)"


def write(*cells: str) -> None:
    start = "\n" if cells[0].startswith("\n") else ""
    sys.stdout.write(f"{start}| {' | '.join(cell.strip() for cell in cells)} |\n")


if __name__ == "__main__":
    sys.exit(main())
