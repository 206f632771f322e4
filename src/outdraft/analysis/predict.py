"""The formulas beside what was measured: cost of a draft, cost of a pass, alpha, and the best draft length by the
formulas.

Data in: records of `outdraft bench`, the cost curve included; data out: a `MethodPrediction` for each method that
drafts. Seconds become units of one plain target pass. Left out of the formulas: reading the prompt, and the loop's own
time.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.analysis.lines import PLAIN
from outdraft.analysis.records import Records, Row
from outdraft.analysis.summary import ALL, Cell, summarise
from outdraft.analysis.theory import estimate_alpha, expected_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPrediction:
    """What the speed-up formula says of one measured method, beside what was measured."""

    method: str
    k: int  # the draft's depth as it was measured
    alpha: float
    draft_cost: float  # c: of one level of a draft
    density: float  # nodes a level: 1 for a chain, less where some passes had nothing to verify, more for a tree
    tau: float  # measured tokens a pass
    expected_tau: float
    speedup: float | None  # measured; None: failed
    expected_speedup: float
    best_k: int
    best_speedup: float


def predict(records: Records) -> list[MethodPrediction]:
    """Every method of ours that drafted at a fixed depth; others have no k to speak of."""
    cells = [cell for cell in summarise(records) if cell.group == ALL and cell.method != PLAIN]
    by_method = {cell.method: [row for row in records.rows if row.method == cell.method] for cell in cells}
    plain = [row for row in records.rows if row.method == PLAIN]
    if records.curve is not None:
        pass_seconds = records.curve.seconds[0]
    else:
        pass_seconds = sum(row.split["target"] for row in plain) / max(1, sum(row.num_steps for row in plain))
    made = []
    for cell in cells:
        rows = by_method[cell.method]
        if pass_seconds and _depth(rows[0]) and any(row.num_draft_tokens for row in rows):
            made.append(_prediction(cell, rows, records, pass_seconds))
    return made


def _prediction(cell: Cell, rows: Seq[Row], records: Records, pass_seconds: float) -> MethodPrediction:
    k, steps = _depth(rows[0]), sum(row.num_steps for row in rows)
    alpha = estimate_alpha(sum(row.num_accepted_tokens for row in rows), sum(row.num_rejections for row in rows))
    density = sum(row.num_draft_tokens for row in rows) / steps / k  # nodes a level, over all passes
    draft_cost = sum(row.split["draft"] for row in rows) / steps / k / pass_seconds
    curve = records.curve

    def tokens(depth: int) -> float:  # a pass without a draft emits one
        return 1 + min(1.0, density) * (expected_tokens(alpha, depth) - 1)

    def speedup(depth: int) -> float:
        return tokens(depth) / (depth * draft_cost + (curve.pass_cost(1 + depth * density) if curve is not None else 1))

    longest = 32 if curve is None else int((curve.rows[-1] - 1) / density)  # beyond it nothing was measured
    best = max(range(min(32, longest) + 1), key=speedup)
    return MethodPrediction(
        method=cell.method,
        k=k,
        alpha=alpha,
        draft_cost=draft_cost,
        density=density,
        tau=sum(row.num_tokens for row in rows) / steps,
        expected_tau=tokens(k),
        speedup=cell.speedup.value if cell.speedup else None,
        expected_speedup=speedup(k),
        best_k=best,
        best_speedup=speedup(best),
    )


def _depth(row: Row) -> int:
    """The draft length k of a row, if its policy fixed one."""
    policy = row.config.get("policy", {})
    return int(policy.get("num_speculative_tokens") or 0) if policy.get("name") == "fixed" else 0
