"""A `Sheet` on the terminal, and in files."""

from collections.abc import Sequence as Seq
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from outdraft.analysis.sheet import Sheet, to_csv, to_markdown
from outdraft.cli.console import say

_STYLES = {"FAILED": "bold red", "NO": "bold red", "yes": "green"}
_WORDS = ("method", "suite", "by position", "identical")  # columns of words; the others are figures


def show_sheet(console: Console, sheet: Sheet) -> None:
    """The table, then its notes."""
    head, _, more = sheet.title.partition("\n")
    title = Text(head, style="bold").append(f"\n{more}" if more else "", style="not bold dim")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in sheet.columns:
        table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=True)
    for row in sheet.rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell.split(",")[0], "")) for cell in row))
    table.width = console.measure(table, options=console.options.update(max_width=1000)).maximum
    console.print(title)
    console.print(table, crop=False)  # a narrow terminal may fold a line, but no figure is cut off
    for note in sheet.notes:
        style = "bold red" if "FAILED" in note else "yellow" if "INCONCLUSIVE" in note else "dim"
        say(console, note, style=style)
    console.print()


def write_sheets(stem: Path, sheets: Seq[Sheet]) -> list[Path]:
    """Markdown of all, and a CSV of the first, for a user who wants the figures themselves."""
    texts = {".md": "\n".join(to_markdown(sheet) for sheet in sheets), ".csv": to_csv(sheets[0])}
    for end, text in texts.items():
        stem.with_suffix(end).write_text(text, encoding="utf-8")
    return [stem.with_suffix(end) for end in texts]
