"""`outdraft theory`: the formulas of speculative decoding as a table and a picture, alone or beside a bench record.

With a budget of cached tokens: those of self-speculation over a sparse cache, by context and batch.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import flag
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.options.ranges import check_range

if TYPE_CHECKING:
    from outdraft.analysis.long_context import SparseDraft
    from outdraft.analysis.records import Records

SUMMARY = "predict the best draft length and speed-up from acceptance and cost"
EPILOG = """examples:
  outdraft theory                                            # alpha by c: the best draft length, its speed-up
  outdraft theory --alpha 0.75 --cost 0.04 --plot theory.png
  outdraft theory --from runs/today.jsonl --plot theory.png  # measured costs; each method beside its prediction
  outdraft theory --budget 512 --alpha 0.8 --batch 1 --batch 64  # drafting over 512 cached tokens, by context
see docs/theory.md for the formulas"""
LONGEST = 16  # draft tokens of the picture's curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which acceptances and costs, and which record."""

    alpha: tuple[float, ...] = flag((), "a chance of acceptance; may be repeated (default: 0.5 ... 0.9)", metavar="A")
    cost: tuple[float, ...] = flag(
        (), "time of one draft token over one target pass; may be repeated (default: 0.02 ... 0.3)", metavar="C"
    )
    from_: str | None = flag(
        None,
        "a record of `outdraft bench`: its cost of a pass by rows, and its methods' own alpha and c",
        metavar="FILE",
    )
    budget: int | None = flag(
        None,
        "cached tokens that a draft step of the target itself reads: the table by context "
        "and batch, of the record's target and machine or of 8 billion parameters on an "
        "accelerator",
        metavar="N",
    )
    batch: tuple[int, ...] = flag((), "sequences, with --budget; may be repeated (default: 1 ... 256)", metavar="B")
    context: tuple[int, ...] = flag(
        (), "cached tokens of each, with --budget; may be repeated (default: 1024 ... 131072)", metavar="N"
    )
    plot: str | None = flag(None, "draw the curves (needs matplotlib: pip install 'outdraft[bench]')", metavar="FILE")
    json: bool = flag(
        False,
        "machine output: cells [alpha, cost, best_k, speedup], methods [method, alpha, ...], plot; "
        "with --budget cells [alpha, batch, context, best_k, speedup], gains [alpha, batch, beyond]",
    )


def run(options: Options) -> int:
    """Print the tables, draw the picture."""
    from outdraft.analysis.predict import predict
    from outdraft.analysis.theory_sheets import ALPHAS, COSTS, best, prediction_sheet, theory_sheet
    from outdraft.analysis.words import what_measured, where_measured
    from outdraft.cli.console import make_console, write_json
    from outdraft.cli.sheets import show_sheet

    check_range(options, "alpha", least=0, most=1, note="a chance")
    check_range(options, "cost", least=0)
    if inf in options.cost:
        raise ConfigError("cost=inf: it must be a number of at least 0")
    check_range(options, "budget", "batch", "context", least=1)
    if options.budget is None and (options.batch or options.context):
        raise ConfigError("--batch and --context are of the table by context: give --budget N too")
    if options.budget is not None and options.cost:
        raise ConfigError("--cost and --budget do not go together: with a budget the cost of a draft follows from it")
    alphas, costs = options.alpha or ALPHAS, options.cost or COSTS
    records = _read(options.from_)
    draw = _drawer(options) if options.plot is not None else None
    if options.budget is not None:
        return _by_context(options, records, draw)
    pass_cost, longest = _measured_cost(records)
    predictions = predict(records) if records is not None else []
    console = make_console(stderr=options.json)
    show_sheet(console, theory_sheet(alphas, costs, pass_cost=pass_cost, longest=longest))
    if records is not None:
        console.print(f"{what_measured(records)}\n{where_measured(records)}", style="dim", markup=False)
        show_sheet(console, prediction_sheet(predictions))
    if options.plot is not None and draw is not None:
        measured = (what_measured(records), where_measured(records)) if records is not None else None
        draw(
            alphas=alphas,
            costs=costs,
            cost=costs[len(costs) // 2],
            pass_cost=pass_cost,
            longest=min(LONGEST, longest),
            predictions=predictions,
            measured=measured,
        )
        console.print(options.plot, style="dim", markup=False, soft_wrap=True)
    if options.json:
        cells = [(alpha, cost, *best(alpha, cost, pass_cost, longest)) for cost in costs for alpha in alphas]
        names = ("alpha", "cost", "best_k", "speedup")
        write_json(
            {
                "cells": [dict(zip(names, cell, strict=True)) for cell in cells],
                "methods": [asdict(one) for one in predictions],
                "plot": options.plot,
            }
        )
    return 0


def _by_context(options: Options, records: "Records | None", draw: Callable[..., None] | None) -> int:
    """The tables and the picture of a sparse cache."""
    from outdraft.analysis.theory_sheets import BATCHES, CONTEXTS, context_sheet
    from outdraft.cli.console import make_console, write_json
    from outdraft.cli.sheets import show_sheet

    batches, contexts = options.batch or BATCHES, options.context or CONTEXTS
    console = make_console(stderr=options.json)
    drafts = [_sparse_draft(options.budget or 1, alpha, records) for alpha in options.alpha or (0.8,)]
    for draft in drafts:
        show_sheet(console, context_sheet(draft, batches, contexts))
    if options.plot is not None and draw is not None:
        draw(draft=drafts[0], batches=batches, contexts=contexts)
        console.print(options.plot, style="dim", markup=False, soft_wrap=True)
    if options.json:
        every = [replace(draft, batch=batch) for draft in drafts for batch in batches]
        begins = [(one, one.break_even()) for one in every]
        cells = [(one.alpha, one.batch, context, *one.best(context)) for one in every for context in contexts]
        names = ("alpha", "batch", "context", "best_k", "speedup")
        write_json(
            {
                "cells": [dict(zip(names, cell, strict=True)) for cell in cells],
                "gains": [
                    {"alpha": one.alpha, "batch": one.batch, "beyond": beyond if isfinite(beyond) else None}
                    for one, beyond in begins
                ],
                "plot": options.plot,
            }
        )
    return 0


def _sparse_draft(budget: int, alpha: float, records: "Records | None") -> "SparseDraft":
    """Of the record's target on the record's machine, where there is one."""
    from outdraft.analysis.long_context import SparseDraft

    if records is None:
        return SparseDraft(budget=budget, alpha=alpha)
    curve = records.curve
    if curve is None:
        raise ConfigError(f"{records.path} holds no cost of a pass: run `outdraft bench` without --no-curve")
    return SparseDraft(
        weight_bytes=curve.weight_bytes,
        kv_bytes=curve.kv_bytes,
        row_flops=curve.flops,
        bandwidth=curve.bandwidth,
        peak_flops=curve.peak_flops,
        budget=budget,
        alpha=alpha,
    )


def _read(path: str | None) -> "Records | None":
    from outdraft.analysis.records import read_records

    return read_records(user_path(path)) if path is not None else None


def _measured_cost(records: "Records | None") -> tuple[Callable[[int], float], int]:
    """Cost of a pass by its rows, and the longest draft that it is known for."""
    from outdraft.analysis.theory import flat

    if records is None or records.curve is None:
        return flat, 32
    return records.curve.pass_cost, min(32, records.curve.rows[-1] - 1)


def _drawer(options: Options) -> Callable[..., None]:
    """Who draws the picture, found before anything is printed. Raises `ConfigError` for one that cannot be drawn."""
    path = user_path(options.plot or "")
    picture = "theory" if options.budget is None else "long_context"
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ConfigError(f"plot={options.plot!r}: write a file that ends with .png, .pdf or .svg")
    if not path.parent.is_dir():
        raise ConfigError(f"plot={options.plot!r}: {path.parent} is no directory; make it first")
    try:
        draw = getattr(import_module(f"outdraft.analysis.plots.{picture}"), f"draw_{picture}")
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'outdraft[bench]'") from error

    def write(**what: Any) -> None:
        try:
            draw(path, **what)
        except OSError as error:
            raise ConfigError(f"plot={options.plot!r} cannot be written: {error.strerror}") from error

    return write
