"""Acceptance by position: how likely the i-th draft token is kept, once all before it were."""

from collections.abc import Sequence as Seq

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from outdraft.analysis.plots.style import Colours, marker_of, short, tidy
from outdraft.analysis.summary import Cell

LONGEST = 16
MOST = 8  # lines that eyes can tell apart


def draw_acceptance(axes: Axes, cells: Seq[Cell], colours: Colours) -> None:
    """A line for each method that drafts; of many, the fastest."""
    drafted = [cell for cell in cells if cell.acceptance_by_position]
    left_out = len(drafted) - MOST
    if left_out > 0:
        fastest = sorted(drafted, key=lambda cell: -(cell.speedup.value if cell.speedup else 0.0))[:MOST]
        drafted = [cell for cell in drafted if cell in fastest]
    methods = [cell.method for cell in cells]
    for cell in drafted:
        rates = cell.acceptance_by_position[:LONGEST]
        axes.plot(
            range(1, len(rates) + 1), rates, marker=marker_of(methods, cell.method), markersize=5, linewidth=1.8,
            color=colours[cell.method], label=short(cell.method), markeredgecolor="white", markeredgewidth=0.6,
        )  # fmt: skip
    tidy(axes, "Accepted at each draft position" + (f" ({MOST} fastest)" if left_out > 0 else ""), grid="y")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position in the draft (if all before it were accepted)")
    if drafted:
        axes.legend(fontsize=7.5, frameon=False, loc="lower right", handlelength=1.4, ncols=1 + (len(drafted) > 5))
