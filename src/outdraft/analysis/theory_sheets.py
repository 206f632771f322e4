"""The formulas as tables: alpha by c, and what was measured beside what they say."""

from collections.abc import Sequence as Seq

from outdraft.analysis.predict import MethodPrediction
from outdraft.analysis.sheet import Sheet
from outdraft.analysis.theory import PassCost, best_length, expected_speedup, flat

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
COSTS = (0.02, 0.05, 0.1, 0.2, 0.3)


def best(alpha: float, cost: float, pass_cost: PassCost = flat, longest: int = 32) -> tuple[int, float]:
    """The best draft length k* and its speed-up S for one acceptance rate and one cost."""
    k = best_length(alpha, draft_cost=cost, pass_cost=pass_cost, longest=longest)
    return k, expected_speedup(alpha, k, draft_cost=cost, pass_cost=pass_cost)


def theory_sheet(
    alphas: Seq[float] = ALPHAS, costs: Seq[float] = COSTS, *, pass_cost: PassCost = flat, longest: int = 32
) -> Sheet:
    """A row for each draft cost c, a column for each alpha: the best draft length, and its speed-up."""
    cells = {(c, alpha): best(alpha, c, pass_cost, longest) for c in costs for alpha in alphas}
    rows = [[f"{c:g}", *("{} -> {:.2f}x".format(*cells[c, alpha]) for alpha in alphas)] for c in costs]
    measured = "a target pass costs 1, however many rows it has"
    if pass_cost is not flat:
        measured = "a pass of one row costs 1, of more rows what was measured"
    return Sheet(
        title=f"Best draft length and its speed-up\nc: time of one draft token / time of one target pass; {measured}",
        columns=["c", *(f"alpha {alpha:g}" for alpha in alphas)],
        rows=rows,
        notes=("0 -> 1.00x means that plain decoding is best; there is a gain if and only if alpha > c",),
    )


def prediction_sheet(predictions: Seq[MethodPrediction]) -> Sheet:
    """A row for each method that drafted at a fixed depth."""
    rows = [
        [
            one.method,
            str(one.k),
            f"{one.alpha:.2f}",
            f"{one.draft_cost:.3f}",
            f"{one.density:.1f}",
            f"{one.tau:.2f}",
            f"{one.expected_tau:.2f}",
            "FAILED" if one.speedup is None else f"{one.speedup:.2f}x",
            f"{one.expected_speedup:.2f}x",
            f"{one.best_k} -> {one.best_speedup:.2f}x",
        ]
        for one in predictions
    ]
    columns = [
        "method",
        "k",
        "alpha",
        "c",
        "nodes\na level",
        "tokens\nper pass",
        "by the\nformula",
        "speed-up",
        "by the\nformula",
        "best k",
    ]
    note = "the formulas leave out reading the prompt, the loop's own time, and that alpha is not the same everywhere"
    return Sheet(title="Measured, and by the formulas", columns=columns, rows=rows, notes=(note,))
