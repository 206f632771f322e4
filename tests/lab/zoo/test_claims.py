"""The claims' record holds every run that their recipe asks for, and the table of the page is what it gives."""

from itertools import accumulate
from operator import mul
from pathlib import Path

import pytest

from lab.trials.table import TAU, chosen, tables
from lab.trials.trial import RECORD, claims_of, lacking, read_runs, read_trial

ROOT = Path(__file__).parents[3]
CLAIMS = ROOT / "lab/zoo/claims"
RUNS = read_runs(CLAIMS / RECORD)


@pytest.fixture
def trial(monkeypatch):
    monkeypatch.chdir(CLAIMS)
    return read_trial(Path("claims.toml"))


def test_every_run_is_given_whole(trial):
    for run in RUNS:
        assert run.arm in trial.arms and run.rate in trial.rates and run.seed in trial.seeds, run.place
        assert run.seconds > 0 and run.parameters > 0 and run.scores.keys() == {"tune", "test"}, run.place
        for scores in run.scores.values():  # near a text's end a round is shorter than it would have been
            assert len(scores["conditional"]) == trial.depth, run.place
            joint = list(accumulate(scores["conditional"], mul))
            assert scores["joint"] == pytest.approx(joint, abs=5e-3), run.place
            assert scores["tau"] == pytest.approx(1 + sum(joint), abs=0.02), run.place


def test_nothing_is_lacking_and_nothing_ran_twice(trial):
    assert lacking(trial, list(trial.arms), RUNS) == []
    assert len(RUNS) == len({run.place for run in RUNS})


def test_the_page_shows_what_the_record_gives(trial):
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    claims = tables(RUNS, claims_of(trial)).split("\n\n")[0].splitlines()
    assert len(claims) == 2 + len(trial.claims)
    assert "\n".join(claims) in page
    assert f"of `lab/zoo/claims`, {len(RUNS)} runs" in page
    said = "chosen among the trial's three with the first seed, and is the largest of them for every arm"
    best = [chosen(RUNS, arm, TAU)[0].rate for arm in trial.arms]
    assert said in page and set(best) == {max(trial.rates)}
