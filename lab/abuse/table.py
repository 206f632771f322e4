"""A record of doublings as Markdown: a line for each field and pair, and what did not hold above all."""

from pathlib import Path
from typing import Any

from lab.abuse.record import rows_of

_HEAD = (
    "field or pair",
    "how",
    "largest taken",
    "refused at",
    "with",
    "p99 gap to harmless",
    "CPU s",
    "peak MiB",
    "kept MiB",
    "verdict",
)


def table(record: Path) -> str:
    """The whole of it."""
    rows = rows_of(record)
    wrong = [row for row in rows if row["wrong"]]
    lines = [f"{len(rows)} measured, of them {sum(row['pair'] for row in rows)} pairs; {len(wrong)} did not hold.", ""]
    lines += ["| " + " | ".join(_HEAD) + " |", "| " + " | ".join("---" for _ in _HEAD) + " |"]
    return "\n".join([*lines, *map(_line, sorted(rows, key=lambda row: (not row["wrong"], row["name"])))])


def _line(row: dict[str, Any]) -> str:
    cells = (
        f"`{row['name']}`",
        row["how"],
        _number(row["largest_taken"]),
        _number(row["refused_at"]),
        row["refused_with"] or "",
        f"{row['ratio']:.2f}",
        f"{row['cpu']:.3f}",
        row["peak_mib"],
        f"{row['kept_mib']:.0f}",
        "; ".join(row["wrong"])[:160].replace("|", "\\|") or "held",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _number(size: int | None) -> str:
    return "" if size is None else f"{size:,}"
