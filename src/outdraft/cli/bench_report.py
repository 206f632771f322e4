"""What `outdraft bench` shows: the measuring, tables and picture of a record file.

Data in: record files; data out: sheets on the terminal and beside the file, and an exit code: 1 if a text was wrong.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from outdraft.analysis.sheet import Sheet
    from outdraft.bench.write import RecordFile


def measure(
    console: "Console",
    path: Path,
    absent: Mapping[str, str],
    notes: Seq[str],
    total: int,
    unit: str,
    make: "Callable[[RecordFile, Callable[[str, int], None]], Any]",
) -> Any:
    """Run what `make` makes of the journal at `path` and a bar of `total` units; returns its outcome.

    `absent`: who is left out, and why. `notes`: to be said before.
    """
    from outdraft.bench.write import RecordFile
    from outdraft.cli.console import progress_bar, say

    for label, why in absent.items():
        say(console, f"left out: {label} ({why})", style="dim")
    with RecordFile(path) as journal:
        if journal.num_found:
            say(console, f"{path} has {journal.num_found} lines; what is measured already is left out", style="dim")
        for note in filter(None, notes):
            say(console, note, style="dim")
        try:
            with progress_bar(console, total, unit) as tell:
                return make(journal, tell).run()
        except KeyboardInterrupt:
            say(console, f"interrupted; the same command with --out {path} goes on")
            raise


def report_file(console: "Console", path: Path, *, by: str, plots: bool, as_json: bool) -> int:
    """Show what a file holds: texts one by one, many at once, or both."""
    from outdraft.analysis.lines import holds_kind

    code = 0
    if holds_kind(path, "load"):
        code = report_load(console, path, as_json=as_json)
        if not holds_kind(path, "row"):
            return code
    return max(code, report_rows(console, path, by=by, plots=plots, as_json=as_json))


def report_rows(
    console: "Console", path: Path, *, by: str, plots: bool, as_json: bool, like: str | None = None, **more: Any
) -> int:
    """Show texts that were measured one by one, of one setup: that of the row with key `like`, or of the last row.

    `by`: "suite" or "category"; `more`: goes into the machine output. Returns 1 if a text was not plain decoding's.
    """
    from outdraft.analysis.advice import advise
    from outdraft.analysis.picture import picture
    from outdraft.analysis.records import read_records
    from outdraft.analysis.summary import summarise
    from outdraft.analysis.tables import curve_sheet, speed_sheet, time_sheet
    from outdraft.analysis.words import how_measured, what_measured, where_measured
    from outdraft.cli.console import say

    records = read_records(path, like)
    cells = summarise(records, by)
    title = f"{what_measured(records)}\n{how_measured(records, cells)}\n{where_measured(records)}"
    sheets = [speed_sheet(cells, title), time_sheet(cells, bars=console.encoding.startswith("utf"))]
    sheets += [curve_sheet(records.curve)] if records.curve is not None else []
    others = f"{records.num_others} rows of the file are of another model, machine or sampling, and left out"
    written = _show(console, sheets, path.with_suffix(""), others if records.num_others else None)
    if plots:
        written.append(path.with_suffix(".svg"))
        written[-1].write_text(picture(records, cells), encoding="utf-8")
    failed = [f"{row.method} on {row.suite} {row.prompt}" for row in records.rows if row.identical is False]
    advice = advise(cells)
    code = _end(console, [path, *written], failed, cells, as_json=as_json, advice=advice, **more)
    if advice:
        say(console, advice, style="bold")
    return code


def report_load(console: "Console", path: Path, *, as_json: bool, like: str | None = None, **more: Any) -> int:
    """The same of many requests at once."""
    from outdraft.analysis.load import read_load, summarise_load
    from outdraft.analysis.load_sheet import load_sheet

    records = read_load(path, like)
    cells = summarise_load(records)
    stem = path.with_name(f"{path.stem}-load")
    others = f"{records.num_others} lines of the file are of another model, machine, sampling or requests, and left out"
    written = _show(console, [load_sheet(records, cells)], stem, others if records.num_others else None)
    failed = [f"{cell.method} with {cell.clients} clients" for cell in cells if cell.identical is False]
    return _end(console, [path, *written], failed, cells, as_json=as_json, **more)


def _show(console: "Console", sheets: "list[Sheet]", stem: Path, others: str | None) -> list[Path]:
    """Tables on the terminal and beside the record. `others`: what is said of lines of another setup."""
    from outdraft.cli.console import say
    from outdraft.cli.sheets import show_sheet, write_sheets

    for sheet in sheets:
        show_sheet(console, sheet)
    if others is not None:
        say(console, others, style="dim")
    return write_sheets(stem, sheets)


def _end(console: "Console", files: Seq[Path], failed: Seq[str], cells: Seq[Any], *, as_json: bool, **more: Any) -> int:
    """Name the files, the record first; the machine output, with `more`, and the exit code."""
    from outdraft.cli.console import say, write_json

    for one in files:
        say(console, str(one), style="dim")
    if as_json:
        path, *written = map(str, files)
        shown = [asdict(cell) for cell in cells]
        write_json({"records": path, "written": written, "failed": failed, "cells": shown, **more})
    return 1 if failed else 0
