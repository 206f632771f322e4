"""The panels of a bench's picture, one function each.

speed-up     of each method on one group of prompts: a dot with its interval, a line where plain decoding is
acceptance   by position: how likely the i-th draft token is kept, once all before it were
split        where the time of one token went: drafting, target passes, all else; a bar shorter than plain's is a gain
cost         of a target pass by its rows, and what a drafter that costs nothing could gain from that: where the dashed
             lines (expected tokens, `analysis.theory`, over the measured cost) fall, drafting further loses time
"""

from collections.abc import Sequence as Seq

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.plots.style import GAIN, HALO, INK, LOSS, PARTS, QUIET, Colours, marker_of, short, tidy
from outdraft.analysis.records import PassCurve
from outdraft.analysis.summary import ALL, Cell
from outdraft.analysis.theory import expected_speedup

LONGEST, MOST = 16, 8  # positions of a draft that are drawn, and lines that eyes can tell apart
ALPHAS = {0.9: "#009e73", 0.7: "#e69f00", 0.5: "#d55e00"}


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
            f"{found.value:.2f}x",
            (found.value, y),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=INK,
            path_effects=HALO,
        )
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
            range(1, len(rates) + 1),
            rates,
            marker=marker_of(methods, cell.method),
            markersize=5,
            linewidth=1.8,
            color=colours[cell.method],
            label=short(cell.method),
            markeredgecolor="white",
            markeredgewidth=0.6,
        )
    tidy(axes, "Accepted at each draft position" + (f" ({MOST} fastest)" if left_out > 0 else ""), grid="y")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position in the draft (if all before it were accepted)")
    if drafted:
        axes.legend(fontsize=7.5, frameon=False, loc="lower right", handlelength=1.4, ncols=1 + (len(drafted) > 5))


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
    axes.legend(
        fontsize=7.5,
        frameon=False,
        ncols=3,
        loc="upper right",
        bbox_to_anchor=(1.03, 1.145),
        handlelength=0.9,
        handletextpad=0.4,
        columnspacing=0.9,
    )


def draw_cost(axes: Axes, curve: PassCurve) -> None:
    """Both in units of plain decoding: a pass of one row, tokens a second."""
    cost = [seconds / curve.seconds[0] for seconds in curve.seconds]
    axes.plot(curve.rows, cost, "-o", color=INK, markersize=4.5, linewidth=1.8)
    lengths = range(0, curve.rows[-1])
    top = 2.0
    for alpha, colour in ALPHAS.items():
        gains = [expected_speedup(alpha, k, draft_cost=0.0, pass_cost=curve.pass_cost) for k in lengths]
        axes.plot([k + 1 for k in lengths], gains, "--", color=colour, linewidth=1.5)
        best = max(range(len(gains)), key=gains.__getitem__)
        top = max(top, gains[best])
        axes.plot([best + 1], [gains[best]], "o", color=colour, markersize=4.5)
        axes.annotate(
            f"{alpha:.0%} right: {gains[best]:.1f}x",
            (best + 1, gains[best]),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center" if best else "left",
            fontsize=7.5,
            color=colour,
            path_effects=HALO,
        )
    axes.axhline(1, color=QUIET, linewidth=0.8)
    axes.set_xscale("log", base=2)
    ticks = [rows for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256) if rows <= curve.rows[-1]]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(rows) for rows in ticks])
    top = 1.15 * max(top, min(cost[-1], 2 * top))
    axes.set_ylim(0, top)
    last = max(i for i, one in enumerate(cost) if one <= top)  # the last point that is seen
    axes.annotate(
        "cost of a pass",
        (curve.rows[last], cost[last]),
        xytext=(-4, 5),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8,
        color=INK,
        path_effects=HALO,
    )
    tidy(axes, "Cost of a pass; gain if drafts were free", grid="y")
    axes.set_xlabel("rows of a target pass (draft tokens + 1)")
    axes.set_ylabel("times plain decoding")
