"""`outdraft theory`: the formulas of speculative decoding as a table, alone or beside a bench record."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf

from outdraft.cli.options import flag
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.options.ranges import check_range

SUMMARY = "predict the best draft length and speed-up from acceptance and cost"
EPILOG = """examples:
  outdraft theory                                            # alpha by c: the best draft length, its speed-up
  outdraft theory --alpha 0.75 --cost 0.04
  outdraft theory --from runs/today.jsonl                    # measured costs; each method beside its prediction
see docs/theory.md for the formulas"""


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
    json: bool = flag(False, "machine output: cells [alpha, cost, best_k, speedup], methods [method, alpha, ...]")


def run(options: Options) -> int:
    """Print the tables."""
    from outdraft.analysis.predict import predict
    from outdraft.analysis.records import read_records
    from outdraft.analysis.theory import flat
    from outdraft.analysis.theory_sheets import ALPHAS, COSTS, best, prediction_sheet, theory_sheet
    from outdraft.analysis.words import what_measured, where_measured
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.cli.sheets import show_sheet

    check_range(options, "alpha", least=0, most=1, note="a chance")
    check_range(options, "cost", least=0)
    if inf in options.cost:
        raise ConfigError("cost=inf: it must be a number of at least 0")
    alphas, costs = options.alpha or ALPHAS, options.cost or COSTS
    records = None if options.from_ is None else read_records(user_path(options.from_))
    pass_cost: Callable[[int], float] = flat
    longest = 32  # draft tokens of which the cost is known
    if records is not None and records.curve is not None:
        pass_cost, longest = records.curve.pass_cost, min(longest, records.curve.rows[-1] - 1)
    predictions = predict(records) if records is not None else []
    console = make_console(stderr=options.json)
    show_sheet(console, theory_sheet(alphas, costs, pass_cost=pass_cost, longest=longest))
    if records is not None:
        say(console, f"{what_measured(records)}\n{where_measured(records)}", style="dim")
        show_sheet(console, prediction_sheet(predictions))
    if options.json:
        cells = [(alpha, cost, *best(alpha, cost, pass_cost, longest)) for cost in costs for alpha in alphas]
        named = [dict(zip(("alpha", "cost", "best_k", "speedup"), cell, strict=True)) for cell in cells]
        write_json({"cells": named, "methods": [asdict(one) for one in predictions]})
    return 0
