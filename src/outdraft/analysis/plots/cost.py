"""What a target pass costs by its rows, on this machine; and what a drafter that costs nothing could gain from that.

If a pass of many rows cost what a pass of one costs, every accepted token would be free. The dashed lines divide the
expected tokens (`analysis.theory`) by the measured cost: where they fall, drafting further loses time.
"""

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from outdraft.analysis.plots.style import HALO, INK, QUIET, tidy
from outdraft.analysis.records import Curve
from outdraft.analysis.theory import expected_speedup

ALPHAS = {0.9: "#009e73", 0.7: "#e69f00", 0.5: "#d55e00"}


def draw_cost(axes: Axes, curve: Curve) -> None:
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
            f"{alpha:.0%} right: {gains[best]:.1f}x", (best + 1, gains[best]), xytext=(0, 5),
            textcoords="offset points", ha="center" if best else "left", fontsize=7.5, color=colour, path_effects=HALO,
        )  # fmt: skip
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
        "cost of a pass", (curve.rows[last], cost[last]), xytext=(-4, 5), textcoords="offset points", ha="right",
        va="bottom", fontsize=8, color=INK, path_effects=HALO,
    )  # fmt: skip
    tidy(axes, "Cost of a pass; gain if drafts were free", grid="y")
    axes.set_xlabel("rows of a target pass (draft tokens + 1)")
    axes.set_ylabel("times plain decoding")
