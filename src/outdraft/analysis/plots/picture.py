"""The picture that a bench ends with: speed-up by group on top; acceptance, time and cost below. It names date and
machine.

Data in: records and their cells; data out: a PNG file.
"""

from collections.abc import Sequence as Seq
from pathlib import Path

from matplotlib.figure import Figure

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.plots.panels import draw_acceptance, draw_cost, draw_speedup, draw_split, speedup_limits
from outdraft.analysis.plots.style import INK, QUIET, colours_of, new_figure, short
from outdraft.analysis.records import Records
from outdraft.analysis.summary import ALL, Cell
from outdraft.analysis.words import how_measured, what_measured, where_measured

BESIDE = 4  # groups beside "all prompts"; of more, none is shown by itself


def draw_picture(records: Records, cells: Seq[Cell], path: Path) -> Figure:
    """Write it to `path`; returns what was drawn."""
    whole = [cell for cell in cells if cell.group == ALL]
    methods, colours = _ranked(whole), colours_of(records.methods)
    groups = [group for group in dict.fromkeys(cell.group for cell in cells) if group != ALL]
    shown = [ALL, *groups] if 1 < len(groups) <= BESIDE else [ALL]
    top = 0.42 * max(3, len(methods)) + 0.9
    height = top + 4.3
    figure = new_figure(12.5, height)
    margin = max(0.105, 0.0058 * max((len(short(method)) for method in methods), default=0) + 0.012)
    grid = figure.add_gridspec(
        2,
        1,
        height_ratios=[top, 2.6],
        left=margin,
        right=0.985,
        top=1 - 1.05 / height,
        bottom=0.75 / height,
        hspace=1.0 / (top / 2 + 1.3),
    )
    upper = grid[0, 0].subgridspec(1, len(shown), wspace=0.07)
    limits = speedup_limits(cells)
    for place, group in enumerate(shown):
        axes = figure.add_subplot(upper[place])
        draw_speedup(axes, [cell for cell in cells if cell.group == group], methods, colours, limits)
        axes.tick_params(labelleft=not place)
        axes.set_xlabel("" if place else "speed-up over plain decoding")
    lower = grid[1, 0].subgridspec(1, 3 if records.curve else 2, wspace=0.36)
    draw_acceptance(figure.add_subplot(lower[0]), whole, colours)
    draw_split(figure.add_subplot(lower[1]), whole, methods)
    if records.curve is not None:
        draw_cost(figure.add_subplot(lower[2]), records.curve)
    _caption(figure, records, cells)
    figure.savefig(path)
    return figure


def _caption(figure: Figure, records: Records, cells: Seq[Cell]) -> None:
    width, height = figure.get_size_inches()
    left = 0.15 / width
    figure.text(left, 1 - 0.15 / height, what_measured(records), fontsize=12.5, fontweight="bold", color=INK, va="top")
    figure.text(left, 1 - 0.43 / height, how_measured(records, cells), fontsize=8.5, color=QUIET, va="top")
    figure.text(left, 0.13 / height, where_measured(records), fontsize=7.5, color=QUIET, va="bottom")


def _ranked(whole: Seq[Cell]) -> list[str]:
    """Drafters, the fastest over all prompts first, failed ones last."""
    drafters = [cell for cell in whole if cell.method != PLAIN]
    ranked = sorted(drafters, key=lambda cell: -(cell.speedup.value if cell.speedup else float("-inf")))
    return [cell.method for cell in ranked]
