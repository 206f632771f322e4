"""Speed-up of each method on one group of prompts: a dot with its interval, and a line where plain decoding is."""

from collections.abc import Sequence as Seq

from matplotlib.axes import Axes

from outdraft.analysis.plots.style import GAIN, HALO, INK, LOSS, Colours, short, tidy
from outdraft.analysis.summary import ALL, Cell


def draw_speedup(
    axes: Axes, cells: Seq[Cell], methods: Seq[str], colours: Colours, limits: tuple[float, float]
) -> None:
    """`cells` of one group; `methods` from top to bottom; `limits` are those of every panel beside this one."""
    by_name = {cell.method: cell for cell in cells}
    low, high = limits
    axes.axvspan(low, 1, color=LOSS, linewidth=0)
    axes.axvspan(1, high, color=GAIN, linewidth=0)
    axes.axvline(1, color=INK, linewidth=1)
    for place, method in enumerate(methods):
        cell, y = by_name.get(method), len(methods) - 1 - place
        if cell is None:
            continue
        if cell.speedup is None:
            axes.text(1, y, " FAILED: another text", va="center", fontsize=8, color="#b00020", fontweight="bold")
            continue
        found, colour = cell.speedup, colours[method]
        axes.plot([found.low, found.high], [y, y], color=colour, linewidth=2.4, alpha=0.45, solid_capstyle="round")
        if found.high > high:  # goes on beyond the panel
            axes.plot([high], [y], ">", color=colour, markersize=5, clip_on=False)
        axes.plot([found.value], [y], "o", color=colour, markersize=7, markeredgecolor="white", markeredgewidth=0.8)
        axes.annotate(
            f"{found.value:.2f}x", (found.value, y), xytext=(0, 7), textcoords="offset points", ha="center",
            fontsize=8, color=INK, path_effects=HALO,
        )  # fmt: skip
    tidy(axes, _title(cells))
    axes.set_xlim(low, high)
    axes.set_ylim(-0.6, len(methods) - 0.3)
    axes.set_yticks(range(len(methods)), labels=[short(method) for method in methods][::-1])


def _title(cells: Seq[Cell]) -> str:
    """The group, and how many prompts it has."""
    if not cells:
        return ""
    count = max(cell.num_prompts for cell in cells)
    return f"all {count} prompts" if cells[0].group == ALL else cells[0].group


def speedup_limits(cells: Seq[Cell]) -> tuple[float, float]:
    """From a little below the slowest to a little above the fastest, 1.0 well inside.

    An interval of more than twice the best speed-up, as noise makes it, is cut there, so that the dots stay apart.
    """
    found = [cell.speedup for cell in cells if cell.speedup is not None]
    low = min([0.75, *(one.low for one in found)])
    most = 2 * max((one.value for one in found), default=1.0)
    high = max([1.25, *(min(one.high, most) for one in found)])
    room = 0.09 * (high - low)
    return max(0.0, low - room), high + room
