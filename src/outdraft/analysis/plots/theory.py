"""The formulas as curves: speed-up by draft length, the best speed-up by acceptance, and what a lock-step batch loses.

Data in: the costs; data out: one PNG. With predictions of a record the third panel is measured against predicted.
"""

from collections.abc import Sequence as Seq
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter, ScalarFormatter

from outdraft.analysis.plots.style import GAIN, HALO, INK, LOSS, PALETTE, QUIET, colours_of, marker_of, new_figure, tidy
from outdraft.analysis.predict import Prediction
from outdraft.analysis.theory import PassCost, expected_speedup, expected_tokens, flat, lockstep_tokens
from outdraft.analysis.theory_sheets import best

_BATCHES, _BATCH_K = (1, 2, 4, 8, 16), 5


def draw_theory(
    path: Path,
    *,
    alphas: Seq[float],
    costs: Seq[float],
    cost: float,
    pass_cost: PassCost = flat,
    longest: int = 16,
    predictions: Seq[Prediction] = (),
    measured: tuple[str, str] | None = None,
) -> None:
    """Write the picture. `cost`: the c of the first panel; `measured`: what the record is of, and where."""
    figure = new_figure(12.5, 4.6)
    grid = figure.add_gridspec(1, 3, left=0.055, right=0.985, top=0.8, bottom=0.18, wspace=0.24)
    _by_length(figure.add_subplot(grid[0]), alphas, cost, pass_cost, longest)
    _by_alpha(figure.add_subplot(grid[1]), costs, pass_cost, longest)
    third = figure.add_subplot(grid[2])
    if predictions:
        _against(third, predictions)
    else:
        _lockstep(third, alphas)
    title = "outdraft theory: what speculation should bring"
    figure.text(0.012, 0.97, title, fontsize=12.5, fontweight="bold", color=INK, va="top")
    flatly = "a target pass costs the same however many rows it has" if pass_cost is flat else "measured cost of a pass"
    what, where = measured or ("", "")
    figure.text(0.012, 0.905, f"{flatly}; {what}".removesuffix("; "), fontsize=8.5, color=QUIET, va="top")
    figure.text(0.012, 0.025, where, fontsize=7.5, color=QUIET, va="bottom")
    figure.savefig(path)


def _by_length(axes: Axes, alphas: Seq[float], cost: float, pass_cost: PassCost, longest: int) -> None:
    lengths = range(longest + 1)
    for colour, alpha in zip(_cycle(alphas), alphas, strict=True):
        gains = [expected_speedup(alpha, k, draft_cost=cost, pass_cost=pass_cost) for k in lengths]
        axes.plot(lengths, gains, color=colour, linewidth=1.8)
        top = int(np.argmax(gains))
        axes.plot([top], [gains[top]], "o", color=colour, markersize=5.5)
        axes.annotate(
            f"{alpha:g}: {gains[top]:.2f}x",
            (longest, gains[-1]),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=colour,
            path_effects=HALO,
        )
    axes.axhline(1, color=QUIET, linewidth=0.8)
    tidy(axes, f"Speed-up by draft length, c = {cost:g} (alpha: best)", grid="y")
    axes.set_ylim(bottom=0)
    axes.set_xlim(-0.3, 1.24 * longest)  # room for the names
    axes.xaxis.set_major_locator(FixedLocator(range(0, longest + 1, max(1, longest // 8))))
    axes.set_xlabel("draft tokens a pass (0 is plain decoding)")
    axes.set_ylabel("times plain decoding")


def _by_alpha(axes: Axes, costs: Seq[float], pass_cost: PassCost, longest: int) -> None:
    alphas = np.linspace(0.0, 0.95, 96)
    for colour, cost in zip(_cycle(costs), costs, strict=True):
        gains = [best(float(alpha), cost, pass_cost, max(32, longest))[1] for alpha in alphas]
        axes.plot(alphas, gains, color=colour, linewidth=1.8, label=f"c = {cost:g}")
    axes.axhline(1, color=QUIET, linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator([1, 1.5, 2, 3, 4, 6, 8, 12, 16]))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_locator(NullLocator())
    tidy(axes, "Best speed-up by acceptance", grid="both")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("alpha: draft tokens accepted, of those examined")
    axes.legend(fontsize=8, frameon=False, loc="upper left")


def _lockstep(axes: Axes, alphas: Seq[float]) -> None:
    for colour, alpha in zip(_cycle(alphas), alphas, strict=True):
        axes.plot(
            _BATCHES,
            [lockstep_tokens(alpha, _BATCH_K, size) for size in _BATCHES],
            "-o",
            color=colour,
            markersize=4.5,
            linewidth=1.8,
            label=f"alpha {alpha:g}",
        )
        axes.axhline(expected_tokens(alpha, _BATCH_K), color=colour, linewidth=1, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(_BATCHES))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    tidy(axes, f"Tokens a pass in a batch, k = {_BATCH_K}", grid="y")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sequences in the batch\n(dashed: ragged, as here; solid: all cut at the shortest)")
    axes.legend(fontsize=7.5, frameon=True, framealpha=0.85, edgecolor="none", loc="lower right", ncols=2)


def _against(axes: Axes, predictions: Seq[Prediction]) -> None:
    shown = [one for one in predictions if one.speedup is not None]
    methods = [one.method for one in shown]
    colours = colours_of(methods)
    top = 1.15 * max([2.0, *(max(one.speedup or 0, one.expected_speedup) for one in shown)])
    axes.fill_between([0, top], [0, 0], [1, 1], color=LOSS, linewidth=0)
    axes.fill_between([0, top], [1, 1], [top, top], color=GAIN, linewidth=0)
    axes.plot([0, top], [0, top], color=QUIET, linewidth=0.8)
    for one in shown:
        axes.plot(
            [one.expected_speedup],
            [one.speedup or 0.0],
            marker_of(methods, one.method),
            color=colours[one.method],
            markersize=7,
            markeredgecolor="white",
            label=one.method,
            linestyle="none",
        )
    tidy(axes, "Measured against the formula", grid="both")
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.set_xlabel("speed-up by the formula")
    axes.set_ylabel("speed-up measured")
    axes.legend(fontsize=7.5, frameon=False, loc="upper left")


def _cycle(items: Seq[float]) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(len(items))]
