"""Self-speculation over a sparse cache as curves: the best speed-up by context, and where a gain begins by batch.

Data in: a `SparseDraft`; data out: one PNG.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from outdraft.analysis.long_context import SparseDraft
from outdraft.analysis.plots.style import INK, PALETTE, QUIET, new_figure, tidy

_ALPHAS = (0.6, 0.7, 0.8, 0.9)


def draw_long_context(path: Path, *, draft: SparseDraft, batches: Seq[int], contexts: Seq[int]) -> None:
    """Draw the speed-up by context length and by batch size, and write the picture to `path`."""
    figure = new_figure(9.5, 4.2)
    grid = figure.add_gridspec(1, 2, left=0.07, right=0.985, top=0.79, bottom=0.12, wspace=0.22)
    _by_context(figure.add_subplot(grid[0]), draft, batches, contexts)
    _by_batch(figure.add_subplot(grid[1]), draft, batches)
    title = f"outdraft theory: the target drafts for itself over {draft.budget} cached tokens"
    figure.text(0.012, 0.97, title, fontsize=12.5, fontweight="bold", color=INK, va="top")
    figure.text(0.012, 0.9, draft.sizes, fontsize=8.5, color=QUIET, va="top")
    figure.savefig(path)


def _by_context(axes: Axes, draft: SparseDraft, batches: Seq[int], contexts: Seq[int]) -> None:
    lengths = np.geomspace(min(contexts), max(contexts) + 1, 97)
    for i, batch in enumerate(batches):
        one = replace(draft, batch=batch)
        gains = [one.best(float(length))[1] for length in lengths]
        axes.plot(lengths, gains, color=PALETTE[i % len(PALETTE)], linewidth=1.8, label=f"batch {batch}")
    axes.axhline(1, color=QUIET, linewidth=0.8)
    _count(axes)
    tidy(axes, f"Best speed-up by context, alpha = {draft.alpha:g}", grid="both")
    axes.set_xlabel("cached tokens of each sequence")
    axes.set_ylabel("times plain decoding")
    axes.legend(fontsize=8, frameon=False, loc="upper left")


def _by_batch(axes: Axes, draft: SparseDraft, batches: Seq[int]) -> None:
    sizes = np.unique(np.geomspace(min(batches), max(batches) + 1, 97).astype(int))
    for i, alpha in enumerate(_ALPHAS):
        begins = [replace(draft, batch=int(size), alpha=alpha).break_even() for size in sizes]
        axes.plot(sizes, begins, color=PALETTE[i % len(PALETTE)], linewidth=1.8, label=f"alpha {alpha:g}")
    axes.axhline(draft.budget, color=QUIET, linewidth=0.8, linestyle="--")
    _count(axes)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    tidy(axes, "Context beyond which there is a gain", grid="both")
    axes.set_xlabel("sequences in the batch (dashed: the budget)")
    axes.legend(fontsize=8, frameon=False, loc="upper right")


def _count(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
