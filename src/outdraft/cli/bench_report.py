"""What `outdraft bench` makes of record files: tables and pictures of one, or what changed from one to another.

Data in: record files; data out: sheets on the terminal and beside the file, and an exit code: 1 if a text was wrong.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.load import report_load

if TYPE_CHECKING:
    from rich.console import Console


def report_file(console: "Console", path: Path, *, by: str, plots: bool, as_json: bool) -> int:
    """Show what a file holds: texts one by one, many at once, or both."""
    from outdraft.analysis.load import holds_load
    from outdraft.analysis.records import holds_rows

    code = 0
    if holds_load(path):
        code = report_load(console, path, plots=plots, as_json=as_json)
        if not holds_rows(path):
            return code
    return max(code, report_rows(console, path, by=by, plots=plots, as_json=as_json))


def report_rows(
    console: "Console",
    path: Path,
    *,
    by: str,
    plots: bool,
    as_json: bool,
    like: str | None = None,
    more: dict[str, Any] | None = None,
) -> int:
    """Show texts that were measured one by one, of one setup: that of the row with key `like`, or of the last row.

    `by`: "suite" or "category"; `more`: goes into the machine output.
    """
    from outdraft.analysis.records import read_records
    from outdraft.analysis.summary import summarise
    from outdraft.analysis.tables import curve_sheet, speed_sheet, time_sheet
    from outdraft.analysis.words import how_measured, what_measured, where_measured
    from outdraft.cli.console import write_json
    from outdraft.cli.sheets import show_sheet, write_sheets

    records = read_records(path, like)
    cells = summarise(records, by)
    title = f"{what_measured(records)}\n{how_measured(records, cells)}\n{where_measured(records)}"
    bars = console.encoding.startswith("utf")
    sheets = [speed_sheet(cells, title), time_sheet(cells, bars=bars)]
    sheets += [curve_sheet(records.curve)] if records.curve is not None else []
    for sheet in sheets:
        show_sheet(console, sheet)
    if records.num_others:
        others = f"{records.num_others} rows of the file are of another model, machine or sampling, and left out"
        console.print(others, style="dim", markup=False)
    written = write_sheets(path.with_suffix(""), sheets)
    if plots:
        try:
            from outdraft.analysis.plots.pictures import draw_pictures
        except ImportError:
            console.print("no pictures: they need matplotlib, pip install 'outdraft[bench]'", markup=False)
        else:
            written += draw_pictures(records, cells, path.with_suffix(""))
    for one in [path, *written]:
        console.print(str(one), style="dim", markup=False, soft_wrap=True)
    failed = [f"{row.method} on {row.suite} {row.prompt}" for row in records.rows if row.identical is False]
    if as_json:
        made = {"records": str(path), "written": [str(one) for one in written], "failed": failed}
        write_json(made | {"cells": [asdict(cell) for cell in cells]} | (more or {}))
    return 1 if failed else 0


def compare_files(console: "Console", earlier: Path, later: Path, *, as_json: bool) -> int:
    """Show what changed from one record file to another."""
    from outdraft.analysis.compare import compare, compare_sheet
    from outdraft.analysis.records import read_records
    from outdraft.cli.console import write_json
    from outdraft.cli.sheets import show_sheet

    before, after = read_records(earlier), read_records(later)
    changes = compare(before, after)
    show_sheet(console, compare_sheet(before, after))
    if as_json:
        write_json([asdict(change) | {"verdict": change.verdict} for change in changes])
    return 1 if any(change.failed for change in changes) else 0
