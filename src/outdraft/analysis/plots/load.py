"""A load as four panels over the number of clients: throughput, what it is over plain, the first token, the gaps.

Data in: a load's records and cells; data out: one PNG.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from outdraft.analysis.load import LoadCell, LoadRecords
from outdraft.analysis.load_sheet import load_title
from outdraft.analysis.plots.style import INK, QUIET, Colours, colours_of, marker_of, new_figure, short, tidy

_WIDEST = 190  # characters of a caption's line
Figure = Callable[[LoadCell], float | None]


def draw_load(records: LoadRecords, cells: Seq[LoadCell], path: Path) -> None:
    """Write the picture to `path`. Failed rows have no point; dotted lines are the 99th percentiles."""
    figure = new_figure(12.5, 7.6)
    grid = figure.add_gridspec(2, 2, left=0.06, right=0.985, top=0.81, bottom=0.1, hspace=0.42, wspace=0.16)
    colours = colours_of(records.methods)
    shown = [cell for cell in cells if cell.identical is not False]

    def panel(row: int, column: int, title: str, middle: Figure, tail: Figure | None = None) -> Axes:
        axes = figure.add_subplot(grid[row, column])
        _lines(axes, shown, records.methods, colours, middle, "-")
        if tail is not None:
            _lines(axes, shown, records.methods, colours, tail, ":")
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_locator(NullLocator())
        tidy(axes, title, grid="both")
        _count_clients(axes, records.levels)
        return axes

    first = panel(0, 0, "Tokens a second, all clients together", lambda cell: cell.tokens_per_second)
    over = panel(0, 1, "Over plain decoding of the same rounds", lambda cell: cell.speedup)
    over.axhline(1, color=INK, linewidth=0.8)
    panel(
        1,
        0,
        "First token, ms (dotted: 99 % are sooner)",
        lambda cell: 1000 * cell.first_token,
        lambda cell: 1000 * cell.first_token_p99,
    )
    panel(
        1,
        1,
        "Gap between two pieces, ms (dotted: 99 % are shorter)",
        lambda cell: _ms(cell.gap),
        lambda cell: _ms(cell.gap_p99),
    )
    figure.legend(
        *first.get_legend_handles_labels(),
        fontsize=8.5,
        frameon=False,
        loc="upper left",
        ncols=6,
        bbox_to_anchor=(0.052, 0.905),
    )
    what, how, where = load_title(records, cells)
    figure.text(0.012, 0.98, what, fontsize=12.5, fontweight="bold", color=INK, va="top")
    figure.text(0.012, 0.94, fill(how, _WIDEST), fontsize=8.5, color=QUIET, va="top")
    figure.text(0.012, 0.015, where, fontsize=7.5, color=QUIET, va="bottom")
    figure.savefig(path)


def _lines(axes: Axes, cells: Seq[LoadCell], methods: Seq[str], colours: Colours, figure: Figure, style: str) -> None:
    for method in methods:
        points = [
            (cell.clients, value) for cell in cells if cell.method == method and (value := figure(cell)) is not None
        ]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                style,
                color=colours[method],
                linewidth=1.7,
                markersize=5,
                marker=marker_of(methods, method),
                markeredgecolor="white",
                markeredgewidth=0.6,
                label=short(method),
                alpha=1.0 if style == "-" else 0.6,
            )


def _count_clients(axes: Axes, levels: Seq[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(levels)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(level) for level in levels])
    axes.set_xlabel("clients at once")


def _ms(seconds: float | None) -> float | None:
    return None if not seconds else 1000 * seconds
