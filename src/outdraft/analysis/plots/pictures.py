"""The pictures that a bench ends with: one overview, and every panel large. Date and machine stand on each of them.

Data in: records and their cells; data out: PNG files.
"""

from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.plots.panels import (
    draw_acceptance,
    draw_cost,
    draw_roofline,
    draw_speedup,
    draw_split,
    speedup_limits,
)
from outdraft.analysis.plots.style import INK, QUIET, colours_of, new_figure, short
from outdraft.analysis.records import Records
from outdraft.analysis.summary import ALL, Cell
from outdraft.analysis.words import how_measured, what_measured, where_measured

BESIDE = 4  # groups beside "all prompts" in one line


def draw_pictures(records: Records, cells: Seq[Cell], stem: Path) -> list[Path]:
    """Write "<stem>.png", the overview, and "<stem>-<panel>.png"; the paths written, overview first."""
    made = {"": _overview(records, cells), "-speedup": _speedups(records, cells)}
    whole = _of(cells, ALL)
    methods = _ranked(cells)
    colours = colours_of(records.methods)
    made["-acceptance"] = _single(records, lambda axes: draw_acceptance(axes, whole, colours))
    made["-split"] = _single(records, lambda axes: draw_split(axes, whole, methods))
    curve = records.curve
    if curve is not None:
        made["-cost"] = _single(records, lambda axes: draw_cost(axes, curve))
        made["-roofline"] = _single(records, lambda axes: draw_roofline(axes, curve))
    paths = []
    for end, figure in made.items():
        path = stem.with_name(f"{stem.name}{end}.png")
        figure.savefig(path)
        paths.append(path)
    return paths


def _overview(records: Records, cells: Seq[Cell]) -> Figure:
    """Speed-up by group on top; acceptance, time and cost below."""
    methods, groups = _ranked(cells), _groups(cells)
    shown = [ALL, *groups] if len(groups) <= BESIDE and len(groups) > 1 else [ALL]
    top = 0.42 * max(3, len(methods)) + 0.9
    figure = new_figure(12.5, top + 4.3)
    height = figure.get_size_inches()[1]
    grid = figure.add_gridspec(
        2,
        1,
        height_ratios=[top, 2.6],
        left=_margin(methods),
        right=0.985,
        top=1 - 1.05 / height,
        bottom=0.75 / height,
        hspace=1.0 / (top / 2 + 1.3),
    )
    upper, lower = grid[0, 0], grid[1, 0]
    _speedup_line(figure, upper.subgridspec(1, len(shown), wspace=0.07), cells, shown, records)
    panels = lower.subgridspec(1, 3 if records.curve else 2, wspace=0.36)
    whole = _of(cells, ALL)
    draw_acceptance(figure.add_subplot(panels[0]), whole, colours_of(records.methods))
    draw_split(figure.add_subplot(panels[1]), whole, methods)
    if records.curve is not None:
        draw_cost(figure.add_subplot(panels[2]), records.curve)
    _caption(figure, records, cells)
    return figure


def _speedups(records: Records, cells: Seq[Cell]) -> Figure:
    """Every group, as many lines of panels as it takes."""
    methods, groups = _ranked(cells), _groups(cells)
    shown = [ALL, *groups] if len(groups) > 1 else [ALL]
    per_line = min(len(shown), BESIDE + 1)
    num_lines = -(-len(shown) // per_line)
    line = 0.42 * max(3, len(methods)) + 1.3
    figure = new_figure(12.5, num_lines * line + 1.2)
    height = figure.get_size_inches()[1]
    grid = figure.add_gridspec(
        num_lines, 1, left=_margin(methods), right=0.985, top=1 - 1.05 / height, bottom=0.75 / height, hspace=0.42
    )
    for number in range(num_lines):
        part = shown[number * per_line : (number + 1) * per_line]
        _speedup_line(figure, grid[number].subgridspec(1, per_line, wspace=0.07), cells, part, records)
    _caption(figure, records, cells)
    return figure


def _margin(methods: Seq[str]) -> float:
    """Room on the left for the longest name, as a share of the width."""
    return max(0.105, 0.0058 * max((len(short(method)) for method in methods), default=0) + 0.012)


def _speedup_line(figure: Figure, grid: Any, cells: Seq[Cell], groups: Seq[str], records: Records) -> None:
    methods, colours = _ranked(cells), colours_of(records.methods)
    limits = speedup_limits([cell for cell in cells if cell.group in [ALL, *_groups(cells)]])
    for place, group in enumerate(groups):
        axes = figure.add_subplot(grid[place])
        draw_speedup(axes, _of(cells, group), methods, colours, limits)
        if place:
            axes.tick_params(labelleft=False)
        else:
            axes.set_xlabel("speed-up over plain decoding")


def _single(records: Records, draw: Any) -> Figure:
    figure = new_figure(7.5, 5.2)
    draw(figure.add_axes((0.13, 0.15, 0.83, 0.65)))
    _caption(figure, records, [])
    return figure


def _caption(figure: Figure, records: Records, cells: Seq[Cell]) -> None:
    width, height = figure.get_size_inches()
    left = 0.15 / width
    figure.text(left, 1 - 0.15 / height, what_measured(records), fontsize=12.5, fontweight="bold", color=INK, va="top")
    figure.text(left, 1 - 0.43 / height, how_measured(records, cells), fontsize=8.5, color=QUIET, va="top")
    figure.text(left, 0.13 / height, where_measured(records), fontsize=7.5, color=QUIET, va="bottom")


def _ranked(cells: Seq[Cell]) -> list[str]:
    """Drafters, the fastest over all prompts first, failed ones last."""
    whole = [cell for cell in _of(cells, ALL) if cell.method != PLAIN]
    return [
        cell.method for cell in sorted(whole, key=lambda cell: -(cell.speedup.value if cell.speedup else float("-inf")))
    ]


def _groups(cells: Seq[Cell]) -> list[str]:
    return [group for group in dict.fromkeys(cell.group for cell in cells) if group != ALL]


def _of(cells: Seq[Cell], group: str) -> list[Cell]:
    return [cell for cell in cells if cell.group == group]
