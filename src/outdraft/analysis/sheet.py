"""A table as plain data, for the terminal and, as Markdown and CSV, for files."""

import csv
import io
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Every cell is text; the first column names the row."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: tuple[str, ...] = ()


def to_markdown(sheet: Sheet) -> str:
    """With the title above and the notes below."""
    bars = [f"| {' | '.join(_escape(cell) for cell in row)} |" for row in [sheet.columns, *sheet.rows]]
    bars.insert(1, "| " + " | ".join(["---"] * len(sheet.columns)) + " |")
    head, _, more = sheet.title.partition("\n")
    above = [f"### {head}", "", *([more, ""] if more else [])]
    return "\n".join([*above, *bars, "", *(f"- {note}" for note in sheet.notes)]).rstrip() + "\n"


def to_csv(sheet: Sheet) -> str:
    """One head line, then the rows."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[name.replace("\n", " ") for name in sheet.columns], *sheet.rows])
    return out.getvalue()


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
