"""The formulas against closed forms, brute force and simulation; the published table; and the sheets."""

import itertools
import random
from pathlib import Path

import pytest
from analysis.made_records import make_records, write

from lab.analysis import formulas
from outdraft.analysis import theory
from outdraft.analysis.predict import predict
from outdraft.analysis.records import read_records
from outdraft.analysis.theory_sheets import prediction_sheet, theory_sheet

TABLE = {  # c -> (k*, S) for alpha .5 .6 .7 .8 .9, by exhaustive search
    0.02: ((4, 1.79), (6, 2.17), (8, 2.76), (11, 3.82), (19, 6.37)),
    0.05: ((3, 1.63), (4, 1.92), (6, 2.35), (8, 3.09), (13, 4.67)),
    0.10: ((2, 1.46), (3, 1.67), (4, 1.98), (6, 2.47), (10, 3.43)),
    0.20: ((1, 1.25), (2, 1.40), (3, 1.58), (4, 1.87), (7, 2.37)),
    0.30: ((1, 1.15), (1, 1.23), (2, 1.37), (3, 1.55), (5, 1.87)),
}


@pytest.mark.parametrize("c", TABLE)
def test_best_lengths(c: float):
    for alpha, (k, gain) in zip((0.5, 0.6, 0.7, 0.8, 0.9), TABLE[c], strict=True):
        assert theory.best_length(alpha, draft_cost=c) == k
        assert theory.expected_speedup(alpha, k, draft_cost=c) == pytest.approx(gain, abs=0.005)


def test_the_next_token_must_survive_c_times_the_speed_up():
    """k grows while alpha^(k+1) / c exceeds S(k): the same optimum, found step by step."""
    for alpha, c in itertools.product((0.05, 0.3, 0.55, 0.72, 0.9), (0.01, 0.08, 0.25, 0.6)):
        k = 0
        while k < 200 and alpha ** (k + 1) / c > theory.expected_speedup(alpha, k, draft_cost=c):
            k += 1
        assert theory.best_length(alpha, draft_cost=c, longest=200) == k
        assert (k > 0) == (alpha > c), "a flat pass gains if and only if alpha > c"


def test_bounds():
    assert theory.expected_speedup(0.7, 300, draft_cost=0) == pytest.approx(1 / 0.3)
    assert theory.expected_speedup(1.0, 5, draft_cost=0.1) == pytest.approx(6 / 1.5)
    assert theory.expected_speedup(0.0, 5, draft_cost=0.1) == pytest.approx(0.67, abs=0.004)
    assert theory.expected_speedup(0.5, 8, draft_cost=0.2) == pytest.approx(0.77, abs=0.005)
    assert theory.best_length(0.8, draft_cost=0.0, pass_cost=lambda rows: rows) == 0, "rows at full price never pay"


def test_lockstep_batches():
    rng = random.Random(1)
    assert [round(formulas.lockstep_tokens(0.8, 5, size), 2) for size in (1, 4, 8)] == [3.69, 1.69, 1.2]

    def length() -> int:
        return next((i for i in range(5) if rng.random() >= 0.8), 5)

    rounds = [1 + min(length() for _ in range(4)) for _ in range(20_000)]
    assert sum(rounds) / len(rounds) == pytest.approx(formulas.lockstep_tokens(0.8, 5, 4), abs=0.02)


def test_sheet_and_predictions(tmp_path: Path):
    sheet = theory_sheet()
    assert sheet.rows[2] == ["0.1", "2 -> 1.46x", "3 -> 1.67x", "4 -> 1.98x", "6 -> 2.47x", "10 -> 3.43x"]
    records = make_records()
    for record in records:
        if record["kind"] == "row" and "=" in record["method"]:
            k = int(record["method"].split("=")[1])
            record["config"] = {**record["config"], "policy": {"name": "fixed", "num_speculative_tokens": k}}
    predictions = predict(read_records(write(tmp_path / "made.jsonl", records)))
    one = next(one for one in predictions if one.method == "draft_model k=4")
    rows = [record for record in records if record.get("method") == one.method]
    curve = records[-1]
    assert one.alpha == pytest.approx(34 / 54) and one.k == 4 and one.density == 1  # 30 steps of 4 tokens
    drafting = sum(row["split"]["draft"] for row in rows) / (30 * len(rows)) / curve["seconds"][0]
    assert one.draft_cost == pytest.approx(drafting / 4)
    v = (curve["seconds"][3] + curve["seconds"][4]) / 2 / curve["seconds"][0]  # 5 rows lie between 4 and 6
    assert one.expected_speedup == pytest.approx(theory.expected_tokens(34 / 54, 4) / (drafting + v))
    assert one.best_speedup >= max(1, one.expected_speedup) and one.tau == pytest.approx(64 / 30)
    assert prediction_sheet(predictions).rows[0][0] == predictions[0].method
    assert not predict(read_records(write(tmp_path / "bare.jsonl", make_records()))), "no depth was fixed, so no k"


@pytest.mark.parametrize("density, rows", [(0.5, 3), (1.25, 6)])
def test_a_prediction_counts_nodes_and_not_levels(density: float, rows: int, tmp_path: Path):
    """Half of all passes without a draft gain half as much; a tree gains as a chain, and its pass has more rows."""
    policy = {"name": "fixed", "num_speculative_tokens": 4}
    records = make_records({"none": 1.0, "draft_model k=4": 1.4}, num_draft_tokens=round(30 * 4 * density))
    for record in records[:-1]:
        record["config"] = {**record["config"], "policy": policy}
    curve = records[-1]
    (one,) = predict(read_records(write(tmp_path / "made.jsonl", records)))
    gained = min(1.0, density) * (theory.expected_tokens(34 / 54, 4) - 1)
    v = curve["seconds"][curve["rows"].index(rows)] / curve["seconds"][0]
    assert one.density == density and one.expected_tau == pytest.approx(1 + gained)
    assert one.expected_speedup == pytest.approx((1 + gained) / (4 * one.draft_cost + v))
