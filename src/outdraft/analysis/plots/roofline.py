"""Roofline: what limits a pass of so many rows, reading memory or arithmetic.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009,
https://doi.org/10.1145/1498765.1498785. Both roofs are measured beside the passes (`bench.curve`), not data-sheet
figures. A pass reads the weights once and the cached rows of its prompt; every row multiplies with all of them.
"""

from matplotlib.axes import Axes

from outdraft.analysis.plots.style import INK, QUIET, tidy
from outdraft.analysis.records import Curve


def draw_roofline(axes: Axes, curve: Curve) -> None:
    """A point for each measured number of rows, under the roof."""
    moved = [curve.weight_bytes + curve.kv_bytes * (curve.past + rows) for rows in curve.rows]
    worked = [curve.flops * rows for rows in curve.rows]
    intensity = [work / move for work, move in zip(worked, moved, strict=True)]
    speed = [work / seconds / 1e9 for work, seconds in zip(worked, curve.seconds, strict=True)]
    ridge = curve.peak_flops / curve.bandwidth
    left, right = min([*intensity, ridge]) / 2, max([*intensity, ridge]) * 2
    peak = curve.peak_flops / 1e9
    axes.plot([left, ridge, right], [left * curve.bandwidth / 1e9, peak, peak], color=INK, linewidth=1.6)
    axes.fill_between([left, ridge, right], [left * curve.bandwidth / 1e9, peak, peak], 1e-9, color="#f4f4f4", lw=0)
    axes.plot(intensity, speed, "-o", color="#0072b2", markersize=5, linewidth=1.2)
    for rows, x, y in zip(curve.rows, intensity, speed, strict=True):
        if rows & (rows - 1) == 0:
            axes.annotate(str(rows), (x, y), xytext=(0, -12), textcoords="offset points", ha="center", fontsize=8,
                          color="#0072b2")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(min(*speed, left * curve.bandwidth / 1e9) / 2, peak * 2)
    tidy(axes, "Roofline: a pass of 1, 2, 4, ... rows", grid="both")
    axes.text(ridge, peak * 1.08, f"  {_rate(peak)}FLOP/s", ha="left", va="bottom", fontsize=8, color=QUIET)
    middle = (left * ridge) ** 0.5
    axes.annotate(f"{curve.bandwidth / 1e9:.0f} GB/s", (middle, middle * curve.bandwidth / 1e9), xytext=(-6, 4),
                  textcoords="offset points", fontsize=8, color=QUIET, ha="right", va="bottom")  # fmt: skip
    axes.set_xlabel("operations for each byte read")
    axes.set_ylabel("GFLOP/s")


def _rate(giga: float) -> str:
    return f"{giga / 1000:.1f} T" if giga >= 1000 else f"{giga:.0f} G"
