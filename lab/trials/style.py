"""How all pictures look: one quiet style, one colour a method, colours that colour-blind eyes tell apart.

The palette is that of Okabe and Ito, "Color universal design", 2002; plain decoding is grey.
"""

from collections.abc import Sequence as Seq

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from outdraft.analysis.lines import PLAIN

INK, QUIET, FAINT = "#222222", "#6b6b6b", "#dddddd"
GAIN, LOSS = "#eef6ee", "#fbf0ee"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#5d4ea0")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
PARTS = {"draft": "#e69f00", "target": "#0072b2", "rest": "#b8b8b8"}
HALO = [withStroke(linewidth=2.2, foreground="white")]  # figures stay readable on a line
LONGEST_NAME = 26
Colours = dict[str, str]


def colours_of(methods: Seq[str]) -> Colours:
    """A colour for each method."""
    drafters = [method for method in methods if method != PLAIN]
    return {PLAIN: QUIET} | {method: PALETTE[i % len(PALETTE)] for i, method in enumerate(drafters)}


def marker_of(methods: Seq[str], method: str) -> str:
    """A mark for each method, for prints without colour."""
    drafters = [one for one in methods if one != PLAIN]
    return _MARKERS[drafters.index(method) % len(_MARKERS)] if method in drafters else "o"


def short(method: str) -> str:
    """A name that fits beside a picture."""
    return method if len(method) <= LONGEST_NAME else method[: LONGEST_NAME - 1] + "\u2026"


def new_figure(width: float, height: float) -> Figure:
    """White, in inches; no global state of matplotlib is touched."""
    return Figure(figsize=(width, height), facecolor="white", dpi=160)


def tidy(axes: Axes, title: str, *, grid: str = "x") -> None:
    """A title on the left, no box, faint lines across the axis that is read."""
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, pad=8)
    for side in ("top", "right", "left" if grid == "x" else "top"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(labelsize=8.5, colors=INK, length=0)
    axes.grid(visible=True, axis="x" if grid == "x" else "both" if grid == "both" else "y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.xaxis.label.set(fontsize=8.5, color=QUIET)
    axes.yaxis.label.set(fontsize=8.5, color=QUIET)
