"""`outdraft theory`: the formulas of speculative decoding as a table and a picture, alone or beside a bench record."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import flag
from outdraft.core.errors import ConfigError

if TYPE_CHECKING:
    from outdraft.analysis.records import Records

SUMMARY = "what speculation should bring: best draft length and speed-up by acceptance and cost"
EPILOG = """examples:
  outdraft theory                                            (alpha by c: the best draft length, its speed-up)
  outdraft theory --alpha 0.75 --cost 0.04 --plot theory.png
  outdraft theory --from runs/today.jsonl --plot theory.png  (measured costs; each method beside its prediction)
see docs/theory.md for the formulas"""
LONGEST = 16  # draft tokens of the picture's curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which acceptances and costs, and which record."""

    alpha: tuple[float, ...] = flag((), "a chance of acceptance; may be repeated (default: 0.5 ... 0.9)", metavar="A")
    cost: tuple[float, ...] = flag((), "time of one draft token over one target pass; may be repeated (default: 0.02 "
                                   "... 0.3)", metavar="C")  # fmt: skip
    from_: str | None = flag(None, "a record of `outdraft bench`: its cost of a pass by rows, and its methods' own "
                             "alpha and c", metavar="FILE")  # fmt: skip
    plot: str | None = flag(None, "draw the curves (needs matplotlib: pip install 'outdraft[bench]')", metavar="FILE")
    json: bool = flag(False, "machine output: cells [alpha, cost, best_k, speedup], methods [method, alpha, ...], plot")


def run(options: Options) -> int:
    """Print the tables, draw the picture."""
    from outdraft.analysis.predict import predict
    from outdraft.analysis.theory_sheets import ALPHAS, COSTS, best, prediction_sheet, theory_sheet
    from outdraft.analysis.words import what_measured, where_measured
    from outdraft.cli.console import make_console, write_json
    from outdraft.cli.sheets import show_sheet

    alphas, costs = options.alpha or ALPHAS, options.cost or COSTS
    for alpha in alphas:
        if not 0 <= alpha <= 1:
            raise ConfigError(f"alpha={alpha:g} is a chance: it must be between 0 and 1")
    for cost in costs:
        if cost < 0:
            raise ConfigError(f"cost={cost:g}: it must be at least 0")
    records = _read(options.from_)
    pass_cost, longest = _measured_cost(records)
    predictions = predict(records) if records is not None else []
    console = make_console(stderr=options.json)
    show_sheet(console, theory_sheet(alphas, costs, pass_cost=pass_cost, longest=longest))
    if records is not None:
        console.print(f"{what_measured(records)}\n{where_measured(records)}", style="dim", markup=False)
        show_sheet(console, prediction_sheet(predictions))
    if options.plot is not None:
        measured = (what_measured(records), where_measured(records)) if records is not None else None
        _draw(options.plot, alphas=alphas, costs=costs, cost=costs[len(costs) // 2], pass_cost=pass_cost,
              longest=min(LONGEST, longest), predictions=predictions, measured=measured)  # fmt: skip
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


def _read(path: str | None) -> "Records | None":
    from outdraft.analysis.records import read_records

    return read_records(Path(path)) if path is not None else None


def _measured_cost(records: "Records | None") -> tuple[Callable[[int], float], int]:
    """Cost of a pass by its rows, and the longest draft that it is known for."""
    from outdraft.analysis.theory import flat

    if records is None or records.curve is None:
        return flat, 32
    return records.curve.pass_cost, min(32, records.curve.rows[-1] - 1)


def _draw(path: str, **what: Any) -> None:
    try:
        from outdraft.analysis.plots.theory import draw_theory
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'outdraft[bench]'") from error
    if Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ConfigError(f"plot={path!r}: write a file that ends with .png, .pdf or .svg")
    try:
        draw_theory(Path(path), **what)
    except OSError as error:
        raise ConfigError(f"plot={path!r} cannot be written: {error.strerror}") from error
