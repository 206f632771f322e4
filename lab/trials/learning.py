"""How much text a draft needs: what it was worth on held-out texts while it learned, one line for each way of training.

Data in: name -> points; data out: one PNG.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from lab.trials.style import INK, PALETTE, QUIET, marker_of, new_figure, short, tidy


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A draft after so many tokens of training."""

    tokens: int
    tau: float  # tokens a pass of the target
    deepest: float  # acceptance at the last position of a draft, if all before it were accepted


def draw_learning(path: Path, lines: Mapping[str, Seq[Point]], *, depth: int, title: str, under: str) -> None:
    """Draw tokens a pass and acceptance at position `depth`, by tokens learned from, and write it to `path`."""
    figure = new_figure(9.5, 4.2)
    grid = figure.add_gridspec(1, 2, left=0.06, right=0.985, top=0.79, bottom=0.12, wspace=0.18)
    for place, name, heading in (
        (grid[0], "tau", "Tokens a pass, held-out texts"),
        (grid[1], "deepest", f"Accepted at position {depth}, if all before it were"),
    ):
        axes = figure.add_subplot(place)
        _lines(axes, lines, name)
        tidy(axes, heading, grid="y")
        axes.set_xlabel("tokens that it has learned from")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g} M" if value else "0"))
        axes.set_xlim(left=0)
    figure.axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    figure.text(0.012, 0.97, title, fontsize=12.5, fontweight="bold", color=INK, va="top")
    figure.text(0.012, 0.9, under, fontsize=8.5, color=QUIET, va="top")
    figure.savefig(path)


def _lines(axes: Axes, lines: Mapping[str, Seq[Point]], name: str) -> None:
    for i, (label, points) in enumerate(lines.items()):
        x, y = [one.tokens for one in points], [getattr(one, name) for one in points]
        axes.plot(
            x,
            y,
            marker=marker_of(list(lines), label),
            markersize=4,
            linewidth=1.6,
            color=PALETTE[i % len(PALETTE)],
            label=short(label),
        )
