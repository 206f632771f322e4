"""Where the time of one token went: drafting, target passes, all else; a bar shorter than plain's is a gain."""

from collections.abc import Sequence as Seq

from matplotlib.axes import Axes

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.plots.style import HALO, INK, PARTS, short, tidy
from outdraft.analysis.summary import Cell


def draw_split(axes: Axes, cells: Seq[Cell], methods: Seq[str]) -> None:
    """Stacked bars in milliseconds a token, in the order of `methods` from top to bottom, plain decoding last."""
    by_name = {cell.method: cell for cell in cells}
    shown = [*(method for method in methods if method in by_name), *([PLAIN] if PLAIN in by_name else [])]
    places = list(range(len(shown)))[::-1]
    start = [0.0] * len(shown)
    for part, colour in PARTS.items():
        widths = [1000 * by_name[method].seconds_per_token * by_name[method].split[part] for method in shown]
        axes.barh(places, widths, left=start, height=0.62, color=colour, label=part, edgecolor="white", linewidth=0.6)
        start = [at + width for at, width in zip(start, widths, strict=True)]
    for place, end in zip(places, start, strict=True):
        axes.text(end, place, f" {end:.2f}", va="center", fontsize=8, color=INK, path_effects=HALO)
    if PLAIN in by_name:
        axes.axvline(1000 * by_name[PLAIN].seconds_per_token, color=INK, linewidth=1)
    tidy(axes, "Time of a token")
    axes.set_xlim(0, 1.14 * max(start, default=1.0))
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.set_yticks(places, labels=["plain" if method == PLAIN else short(method) for method in shown])
    axes.set_xlabel("milliseconds a token")
    axes.legend(fontsize=7.5, frameon=False, ncols=3, loc="upper right", bbox_to_anchor=(1.03, 1.145),
                handlelength=0.9, handletextpad=0.4, columnspacing=0.9)  # fmt: skip
