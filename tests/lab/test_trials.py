"""Trials: rates are chosen on one set of texts and judged on another; differences are paired; nothing runs twice."""

import json
from contextlib import ExitStack
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from lab.trials import trial as trials
from lab.trials.__main__ import main
from lab.trials.forecast import forecast
from lab.trials.table import Claim, Difference, Run, chosen, difference, tables
from lab.trials.trial import RECORD, lacking, mine, read_runs, read_trial
from outdraft.core.learner_registry import find_learner
from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import ConfigError
from outdraft.training.check import check_directory
from tests.training.toys import toy_decoder, write_trial


def run(arm: str, rate: float, seed: int, tune: float, test: float) -> Run:
    scores = {
        words: {"tau": x, "conditional": [x, x / 2, x / 4], "joint": []}
        for words, x in (("tune", tune), ("test", test))
    }
    return Run(arm=arm, rate=rate, seed=seed, scores=scores, seconds=1, parameters=5, machine="")


RUNS = [
    run("a", 1.0, 0, 2.0, 3.0),
    run("a", 1.0, 1, 2.0, 5.0),
    run("a", 1.0, 2, 2.0, 4.0),
    run("a", 2.0, 0, 1.0, 9.0),
    run("a", 2.0, 1, 1.0, 9.0),
    run("a", 2.0, 2, 1.0, 9.0),
    run("b", 1.0, 1, 1.0, 4.0),
    run("b", 1.0, 0, 1.0, 2.5),
    run("b", 1.0, 2, 1.0, 2.5),
]
CLAIM = Claim(says="a over b", better="a", worse="b", measure="tau")


def test_the_rate_is_chosen_where_nothing_is_judged():
    assert [(one.rate, one.seed) for one in chosen(RUNS, "a", CLAIM)] == [(1.0, 0), (1.0, 1), (1.0, 2)]


def test_a_rate_is_judged_where_all_of_them_were_tried():
    more = [*RUNS[:1], RUNS[3], run("a", 1.0, 1, 0.1, 5.0), run("a", 1.0, 2, 0.1, 4.0)]
    assert [(one.rate, one.seed) for one in chosen(more, "a", CLAIM)] == [(1.0, 0), (1.0, 1), (1.0, 2)]


def test_a_difference_is_that_of_equal_seeds():
    far = [0.5, 1.0, 1.5]
    found = difference(RUNS, CLAIM)
    assert (found.mean, found.seeds) == (1.0, 3)
    assert found.error == pytest.approx(sqrt(sum((x - 1) ** 2 for x in far) / 2) / sqrt(3))
    assert difference(RUNS[:1], CLAIM) is None


@pytest.mark.parametrize(("seeds", "least"), [(2, 12.706), (3, 4.303), (5, 2.776), (11, 2.228), (40, 2.228)])
def test_few_seeds_need_a_difference_of_more_errors(seeds: int, least: float):
    """Student's quantiles: two standard errors would confirm 18 of 100 differences of nothing, with three seeds."""
    told = [
        Difference(mean=x, error=1.0, seeds=seeds).verdict for x in (least + 0.01, least - 0.01, -least - 0.01, 0.0)
    ]
    assert told == ["yes", "not at this size", "no: the other way", "not at this size"]


def test_a_difference_of_nothing_is_rarely_confirmed():
    drawn = np.random.default_rng(0).normal(size=(20_000, 3))
    errors = drawn.std(1, ddof=1) / sqrt(3)
    told = [
        Difference(mean=float(x), error=float(e), seeds=3).verdict for x, e in zip(drawn.mean(1), errors, strict=True)
    ]
    assert 0.045 < 1 - told.count("not at this size") / len(told) < 0.055


def test_measures_name_depths():
    scores = RUNS[0].scores["test"]
    found = [Claim(says="", better="", worse="", measure=one).of(scores) for one in ("tau", "depth 2", "depths 2 to 3")]
    assert found == [3.0, 1.5, 1.125]
    for wrong in ("speed", "depth", "depth 0", "depths 3 to 2", "depths 2 till 3"):
        with pytest.raises(ConfigError, match="write tau, depth 3"):
            Claim(says="", better="", worse="", measure=wrong).of(scores)
    for deep in ("depth 4", "depths 2 to 4"):
        with pytest.raises(ConfigError, match=f"'{deep}' of the claim 'x': one of its drafts guesses 3 tokens"):
            Claim(says="x", better="", worse="", measure=deep).of(scores)


def test_tables_show_claims_and_arms():
    text = tables(RUNS, [CLAIM])
    assert "| a over b | tau | 4.000 | 3.000 | +1.0000 ± 0.2887 | not at this size |" in text
    assert "| a | 1 | 5 | 1 | 4.000 | 4.000 2.000 1.000 |" in text


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_trial(
        tmp_path,
        """
rates = [1, 2]
seeds = [0, 1]
depth = 2
texts = 8
[loop]
batch_tokens = 128
micro_tokens = 64
seq_len = 32
eval_every = 2
[arms.unrolled]
kind = "eagle"
options = { num_steps = 2, taps = [1] }
[arms.one_step]
kind = "eagle"
options = { num_steps = 1, taps = [1] }
[[claims]]
says = "Unrolled over one step"
better = "unrolled"
worse = "one_step"
measure = "depth 2"
""",
    )


def test_a_trial_runs_each_arm_once(trial: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = [str(trial), "--out", str(tmp_path / "out")]
    assert main([*words, "--only", "one_step"]) == 0
    assert {one.arm for one in read_runs(tmp_path / "out" / RECORD)} == {"one_step"}
    capsys.readouterr()
    assert main(words) == 0
    before = capsys.readouterr().out
    runs = read_runs(tmp_path / "out" / RECORD)
    assert sorted((one.arm, one.rate, one.seed) for one in runs) == [
        (arm, rate, seed) for arm in ("one_step", "unrolled") for rate in (1.0, 2.0) for seed in (0, 1)
    ]
    assert all(len(one.scores["test"]["conditional"]) == 2 for one in runs), "judged as deep, whatever it learned"
    assert "| Unrolled over one step | depth 2 |" in before
    assert main([*words, "--plot", str(tmp_path / "arms.png")]) == 0 and capsys.readouterr().out == before
    assert (tmp_path / "arms.png").stat().st_size > 10_000
    assert main([str(trial), "--out", str(tmp_path / "none"), "--table", "--plot", str(tmp_path / "none.png")]) == 2
    assert "arm 'unrolled' has no run yet" in capsys.readouterr().err
    assert len(read_runs(tmp_path / "out" / RECORD)) == len(runs)


def test_later_seeds_take_the_rate_that_the_first_one_chose(
    trial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One for tau and one for the claim's measure, where these differ."""
    best = {("unrolled", 2.0): (4.0, 1.0), ("unrolled", 1.0): (3.0, 1.5), ("one_step", 1.0): (4.0, 1.5)}

    def run_arm(trial, name, rate, seed, work, tell):
        tau, deep = best.get((name, rate), (1.0, 0.1))
        scores = {words: {"tau": tau, "conditional": [1.0, deep], "joint": []} for words in ("tune", "test")}
        return Run(arm=name, rate=rate, seed=seed, scores=scores, seconds=1, parameters=5, machine="")

    monkeypatch.setattr(trials, "run_arm", run_arm)
    trial.write_text(trial.read_text().replace("seeds =", "tuned_on = 1\nseeds ="))
    assert main([str(trial), "--out", str(tmp_path / "out")]) == 0
    runs = read_runs(tmp_path / "out" / RECORD)
    assert sorted((one.arm, one.rate) for one in runs if one.seed == 0) == [
        (arm, rate) for arm in ("one_step", "unrolled") for rate in (1.0, 2.0)
    ]
    later = sorted((one.arm, one.rate) for one in runs if one.seed == 1)
    assert later == [("one_step", 1.0), ("unrolled", 1.0), ("unrolled", 2.0)]


def test_a_target_in_bfloat16_is_judged_as_it_was_trained_under(trial: Path, tmp_path: Path):
    save_model(toy_decoder().bfloat16(), tmp_path / "target")
    text = trial.read_text()
    trial.write_text(text[: text.index("[arms.unrolled]")] + '[arms.last]\nkind = "eagle1"\n')
    assert main([str(trial), "--out", str(tmp_path / "out")]) == 0
    assert len(read_runs(tmp_path / "out" / RECORD)) == 4


def test_unknown_arms_and_keys_are_named(trial: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(trial), "--out", str(tmp_path / "out"), "--only", "unroled"]) == 2
    assert "--only unroled is no arm, did you mean 'unrolled'?; there are: unrolled, one" in capsys.readouterr().err
    text = trial.read_text()
    trial.write_text(text.replace('better = "unrolled"', 'better = "unroled"'))
    with pytest.raises(ConfigError, match="names the arm 'unroled', which is not there"):
        read_trial(trial)
    for measure, says in (("speed", "write tau"), ("depths 1 to 3", "measures depths 1 to 3, and depth=2")):
        trial.write_text(text.replace('"depth 2"', f'"{measure}"'))
        with pytest.raises(ConfigError, match=says):
            read_trial(trial)
    trial.write_text(text.replace("seeds =", "sedes ="))
    with pytest.raises(ConfigError, match="sedes"):
        read_trial(trial)


@pytest.mark.parametrize("finished", [False, True])
def test_what_another_process_has_under_way_is_left_to_it(
    trial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool
):
    """What it finishes is not run again, and what it leaves undone comes last of its seed."""
    order: list[tuple[str, float, int]] = []
    out, others = tmp_path / "out", ExitStack()

    def run_arm(trial, name, rate, seed, work, tell):
        order.append((name, rate, seed))
        if len(order) == 3:
            if finished:
                (out / RECORD).open("a").write(json.dumps(run("unrolled", 2.0, 0, 1, 1).told()) + "\n")
            others.close()
        return run(name, rate, seed, 1, 1)

    monkeypatch.setattr(trials, "run_arm", run_arm)
    with others:
        assert others.enter_context(mine(out / "locks" / "unrolled-2-0", waits=False))
        assert main([str(trial), "--out", str(out)]) == 0
    first = [("unrolled", 1.0, 0), ("one_step", 1.0, 0), ("one_step", 2.0, 0)]
    assert order[:3] == first
    assert order[3:4] == ([("unrolled", 1.0, 1)] if finished else [("unrolled", 2.0, 0)])
    runs = read_runs(out / RECORD)
    assert len(runs) == len({(one.arm, one.rate, one.seed) for one in runs}) == 8


def test_a_lock_is_one_holders(tmp_path: Path):
    with mine(tmp_path / "lock", waits=False) as first, mine(tmp_path / "lock", waits=False) as second:
        assert first and not second
    with mine(tmp_path / "lock", waits=True) as third:
        assert third


def test_what_is_lacking_and_how_long_it_takes(trial: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trial.write_text(trial.read_text().replace("seeds =", "tuned_on = 1\nseeds ="))
    asked, arms = read_trial(trial), ["unrolled", "one_step"]
    assert len(lacking(asked, arms, [])) == 6, "each rate with the first seed, one with the second"
    runs = [run("unrolled", 1.0, 0, 1, 1), run("unrolled", 2.0, 0, 2, 2)]
    assert lacking(asked, arms, runs) == [
        ("one_step", 1.0, 0),
        ("one_step", 2.0, 0),
        ("unrolled", 2.0, 1),
        ("one_step", 1.0, 1),
    ]
    told = forecast(lacking(asked, arms, runs), runs, {"unrolled": 512, "one_step": 64 * 512}).splitlines()
    assert told[0] == "one_step: 3 runs of about 64 s, by the other arms", "it reads 64 times as many tokens"
    assert told[1:] == ["unrolled: 1 runs of about 1 s", "4 runs are lacking: about 3 min"]
    assert main([str(trial), "--out", str(tmp_path / "out"), "--forecast"]) == 0
    assert "6 runs are lacking: about 0 min, and 6 of arms that were never run" in capsys.readouterr().out
    assert not (tmp_path / "out" / RECORD).exists()


def test_a_trials_draft_may_promise_something(trial: Path, tmp_path: Path):
    text = trial.read_text().replace("seeds = [0, 1]", "seeds = [0]\npromises = 4").replace("[1, 2]", "[1]", 1)
    trial.write_text(text)
    assert main([str(trial), "--out", str(tmp_path / "out"), "--only", "unrolled"]) == 0
    found = check_directory(tmp_path / "out" / "unrolled-1-0", str(tmp_path / "target"))
    assert [one.promise.terms.temperature for one in found] == [0.0, 1.0]
    assert all(len(one.promise.terms.prompts) == 4 for one in found)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that are given, and not made."""
    made: list[str] = []

    def run_arm(trial, name, rate, seed, work, tell):
        made.append(name)
        return run(name, rate, seed, 1, 1)

    monkeypatch.setattr(trials, "run_arm", run_arm)
    return made


@pytest.mark.parametrize(
    ("change", "arm"),
    [
        (lambda place: edited(place, "num_steps = 2", "num_steps = 3"), "unrolled"),
        (lambda place: edited(place, "tokens = 512", "tokens = 1024"), "unrolled"),
        (lambda place: edited(place, "seq_len = 32", "seq_len = 16"), "unrolled"),
        (lambda place: (place / "test.jsonl").write_text('{"token_ids": [1, 2, 3]}'), "unrolled"),
        (lambda place: save_model(toy_decoder(5), place / "target"), "unrolled"),
    ],
)
def test_a_run_of_another_recipe_is_refused(change, arm: str, trial: Path, tmp_path: Path, quick, capsys):
    words = [str(trial), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    count = len(quick)
    (tmp_path / "elsewhere.jsonl").write_bytes((tmp_path / "train.jsonl").read_bytes())
    edited(tmp_path, 'data = ["train.jsonl"]', 'data = ["elsewhere.jsonl"]')
    edited(tmp_path, "seeds = [0, 1]", "seeds = [0, 1, 2]")
    assert main(words) == 0 and len(quick) == count * 3 // 2, "the same texts elsewhere, and more seeds"
    change(tmp_path)
    for more in ([], ["--table"], ["--forecast"]):
        capsys.readouterr()
        assert main([*words, *more]) == 2
        said = capsys.readouterr().err
        assert f"the arm '{arm}' has other settings or texts by now" in said and "--out" in said
    record = tmp_path / "out" / RECORD
    record.write_text(
        "".join(json.dumps(run(a, 1.0, 0, 1, 1).told() | {"recipe": ""}) + "\n" for a in ("unrolled", "x"))
    )
    assert main([*words, "--table"]) == 0, "older runs say nothing of their recipe"


def edited(place: Path, old: str, new: str) -> None:
    text = (place / "trial.toml").read_text()
    assert old in text
    (place / "trial.toml").write_text(text.replace(old, new))


def test_half_a_line_is_written_over(trial: Path, tmp_path: Path, quick, capsys):
    words, record = [str(trial), "--out", str(tmp_path / "out")], tmp_path / "out" / RECORD
    assert main([*words, "--only", "one_step"]) == 0
    whole = record.read_text()
    record.write_text(whole + whole.splitlines()[0][:40])
    assert main([*words, "--forecast"]) == 0 and main([*words, "--table"]) == 0
    assert main(words) == 0
    assert record.read_text().startswith(whole) and len(read_runs(record)) == 8
    record.write_text("{}\n" + whole)
    assert main([*words, "--table"]) == 2
    assert "trial.jsonl, line 1 is no run" in capsys.readouterr().err


def test_what_guesses_no_tokens_is_refused_before_it_is_trained(trial: Path, tmp_path: Path, capsys):
    method = find_learner("draft_model")
    method.new(method.options(), load_model(tmp_path / "target"), 0).save(tmp_path / "draft")
    text = trial.read_text()
    head = f'[arms.head]\nkind = "acceptance_head"\noptions = {{ draft = "{tmp_path / "draft"}" }}\n'
    trial.write_text(text[: text.index("[arms.unrolled]")] + head)
    assert main([str(trial), "--out", str(tmp_path / "out")]) == 2
    assert "arm 'head': acceptance_head guesses no tokens" in capsys.readouterr().err
