"""The scripts beside the zoo's recipes, on toy inputs: what they print, what they copy, and what they leave alone."""

import json
import random
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch
from analysis.made_records import make_row, write
from safetensors.torch import load_file, save_file

from lab.trials import __main__ as trials
from lab.trials.table import Run
from lab.trials.trial import RECORD, Trial
from lab.zoo import before_after, figures, install
from outdraft.bench.lineup import parse_rival
from outdraft.models.files.load import load_model
from outdraft.training.record import fingerprint, read_record
from tests.training.toys import write_trial

RECIPES = Path(__file__).parents[3] / "lab/zoo"


def ran(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *map(str, words)])
    module.main()


def a_run(arm: str, rate: float, seed: int, tune: float) -> Run:
    scores = {words: {"tau": tune, "conditional": [0.5], "joint": [0.5]} for words in ("tune", "test")}
    return Run(arm=arm, rate=rate, seed=seed, scores=scores, seconds=12.4, parameters=5, machine="")


def record(out: Path, *runs: Run) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / RECORD).write_text("".join(json.dumps(run.told()) + "\n" for run in runs))


# before_after


def test_two_reports_stand_beside_each_other():
    before = {
        "losses": {
            "books": {"target_nats": 2.5, "target_bits_per_byte": 1.25, "ngram_nats": 4.0},
            "mixture": {"target_nats": 2.0, "ngram_nats": 3.5},
        },
        "looping": {"books": 0.5, "all": 0.25},
    }
    after = {
        "losses": {
            "books": {"target_nats": 2.25, "target_bits_per_byte": 1.0, "ngram_nats": 3.75},
            "mixture": {"target_nats": 1.75, "ngram_nats": 3.25},
        },
        "looping": {"books": 0.125, "all": 0.1},
    }
    lines = before_after.tables(before, after).splitlines()
    task = tomllib.loads((RECIPES / "evaluate.toml").read_text())["task"]
    counted = task["ngram_steps"] * task["ngram_rows"] * (task["length"] - 1)
    assert f"4-gram of {counted / 1e6:.1f} M tokens" in lines[0]
    assert lines[2] == "| books | 2.50 | 2.25 | 1.25 | 1.00 | 3.75 |"
    assert lines[3] == "| mixture | 2.00 | 1.75 |  |  | 3.25 |", "a mixture has no bytes of its own"
    assert lines[-2:] == ["| books | 50% | 12% |", "| all | 25% | 10% |"]
    columns = {line.count("|") for line in lines[:4]}, {line.count("|") for line in lines[5:]}
    assert columns == ({7}, {4})


# figures


def test_a_half_line_is_cut_off_and_its_draft_measured_again(tmp_path):
    path = tmp_path / "figures.jsonl"
    assert figures.measured(path) == {}
    path.write_text('{"weights": "a", "seconds": 1}\n{"weights": "b", "sec')
    assert figures.measured(path) == {"a": {"weights": "a", "seconds": 1}}
    assert path.read_text() == '{"weights": "a", "seconds": 1}\n'


def test_each_arm_is_its_first_seed_at_its_best_rate(tmp_path):
    trial = Trial(target="t", data=(), tune=(), test=(), tokens=1, arms={"eagle": {}, "medusa": {}})
    runs = [a_run("eagle", rate, seed, tune) for rate, seed, tune in ((1, 4, 1.5), (2, 4, 1.75), (2, 3, 1.25))]
    record(tmp_path, *runs, a_run("gone", 1, 4, 9.0))
    (found,) = figures.drafts_of(trial, tmp_path).items()
    assert found == ("eagle", runs[2]) and found[1].place == "eagle-2-3"


def test_a_draft_is_spelt_as_the_bench_reads_and_records_it(tmp_path):
    """What the words say is what the bench runs, and its rows are found again by the place in their label."""
    rng = random.Random(0)
    places = {kind: tmp_path / kind for kind in ("draft_model", "eagle", "eagle3", "hass")}
    rivals = {kind: parse_rival(figures.method_words(kind, place)) for kind, place in places.items()}
    assert rivals["draft_model"].roles == {"draft_model": str(places["draft_model"])}
    assert all(
        one.is_recipe and one.roles == {"head": str(places[kind])}
        for kind, one in rivals.items()
        if kind != "draft_model"
    )
    assert [rivals[kind].name for kind in ("eagle3", "hass")] == ["eagle3", "hass"]
    told = (
        ("eagle", "prose", 2.0, {"tau": 2.5, "split": {"draft": 0.25, "target": 1.0, "rest": 0.0}}),
        ("eagle", "code", 1.0, {"tau": 1.5, "split": {"draft": 0.75, "target": 0.5, "rest": 0.5}, "identical": None}),
        ("eagle3", "prose", 1.0, {"identical": False}),
    )
    rows = [
        make_row("eagle", suite, "1", speed=speed, noise=0.0, rng=rng, **rest)
        | {"method": rivals[kind].label, "config": {"drafter": {"weights": kind}}}
        for kind, suite, speed, rest in told
    ]
    before = rows[0] | {"plain_seconds": [9.0] * 3, "config": {"drafter": {"weights": "trained before"}}}
    plain = rows[2] | {"method": rivals["draft_model"].label, "config": {"drafter": {}}}  # tell no digest
    path = write(tmp_path / "bench.jsonl", [before, *rows, plain, {"kind": "curve"}])
    found = figures.benched(path, places)
    assert found.keys() == {"draft_model", "eagle", "eagle3"}, "eagle's rows are not those of eagle3"
    assert found["eagle"] == pytest.approx({"share": 1 / 3, "speedup": 1.5, "tau": 2.0, "identical": True})
    assert not found["eagle3"]["identical"]


@pytest.fixture
def toy_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One arm on a toy target, trained for a moment."""
    monkeypatch.chdir(tmp_path)
    trial = write_trial(
        tmp_path,
        "depth = 2\npromises = 4\n[loop]\nbatch_tokens = 128\nmicro_tokens = 64\nseq_len = 32\neval_every = 2\n"
        '[arms.first]\nkind = "eagle1"\n[arms.later]\nkind = "eagle1"\n',
    )
    assert trials.main([str(trial), "--out", "out", "--only", "first"]) == 0
    return trial


def test_what_is_lacking_is_measured_once_and_printed(toy_trial, tmp_path, monkeypatch, capsys):
    words = (toy_trial, "--out", "out", "--text", "test.jsonl")
    ran(figures, monkeypatch, *words, "--forecast")
    assert capsys.readouterr().out.startswith("1 drafts to measure, 1 to train first: nan s each")
    ran(figures, monkeypatch, *words)
    said = capsys.readouterr()
    (line,) = (tmp_path / "out" / figures.FIGURES).read_text().splitlines()
    row = json.loads(line)
    assert row["arm"] == "first" and len(row["text"]["conditional"]) == 2 and row["bytes"] > 0
    assert row["text"] == row["samples"], "here they are one file"
    assert {row[way]["temperature"] for way in ("greedy", "sampled")} == {0.0, 1.0}
    table = said.out.splitlines()
    assert len(table) == 5 and len({line.count("|") for line in table[:3]}) == 1
    assert table[2].startswith("| first | ") and f"| {row['greedy']['measured']:.2f} |" in table[2]
    assert table[4].startswith("512 tokens each;") and said.err.count("first: ") == 2
    monkeypatch.setattr(figures, "measure", None)  # nothing is measured again
    ran(figures, monkeypatch, *words)
    assert capsys.readouterr().out.splitlines() == table
    ran(figures, monkeypatch, *words, "--methods")
    assert capsys.readouterr().out == f"--method {figures.method_words('eagle1', tmp_path / 'out/first-1-0')}\n"


def test_an_arm_that_taught_its_target_is_measured_with_that_target(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trial = write_trial(
        tmp_path,
        "depth = 2\npromises = 4\n[loop]\nbatch_tokens = 128\nmicro_tokens = 64\nseq_len = 32\neval_every = 2\n"
        '[arms.both]\nkind = "medusa"\noptions = { joint = true, num_heads = 2 }\n',
    )
    assert trials.main([str(trial), "--out", "out"]) == 0
    words = (trial, "--out", "out", "--text", "test.jsonl")
    ran(figures, monkeypatch, *words)
    said = capsys.readouterr().out
    (row,) = map(json.loads, (tmp_path / "out" / figures.FIGURES).read_text().splitlines())
    nats = row["target_nats"]
    assert f"both: its target learned with it: {nats['before']:.3f} nats a token before, " in said
    assert row["greedy"]["rounds"] > 0, "the check was of its own target: of another it would have been refused"
    assert read_record(tmp_path / "out/both-1-0").target == fingerprint(load_model(tmp_path / "out/both-1-0/target"))
    ran(figures, monkeypatch, *words, "--methods")
    assert capsys.readouterr().out == "", "it cannot stand in a bench of the trial's target"
    ran(figures, monkeypatch, *words, "--methods", "--arm", "both")
    assert capsys.readouterr().out == f"--method {figures.method_words('medusa', tmp_path / 'out/both-1-0')}\n"
    with pytest.raises(SystemExit, match="no draft of bth is trained in out; there are: both"):
        ran(figures, monkeypatch, *words, "--methods", "--arm", "bth")


def test_an_arm_that_learned_for_longer_is_marked(tmp_path):
    arms = {"eagle": {"kind": "eagle"}, "longer": {"kind": "eagle", "tokens": 8_000}}
    trial = Trial(target="t", data=(), tune=(), test=(), tokens=1_000, arms=arms)
    drafts = {arm: a_run(arm, 1, 0, 1.5) for arm in arms}
    assert "\n1,000 tokens each, longer 8,000; seconds of " in figures.table(trial, drafts, {}, {})


# install


def test_a_draft_goes_into_the_zoo_rounded_with_its_record(tmp_path):
    for name in ("zoo/target", "draft/run"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "zoo/target/tokenizer.json").write_text("of the target")
    source = tmp_path / "draft"
    (source / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "torch_dtype": "float32"}')
    (source / "training.json").write_text("{}")
    (source / "run/step.pt").write_text("a checkpoint")
    save_file({"w": torch.tensor([1.001])}, source / "model.safetensors")
    place = install.install(source, tmp_path / "zoo")
    assert {path.name for path in place.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "training.json",
    }
    assert json.loads((place / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert load_file(place / "model.safetensors")["w"].equal(torch.tensor([1.0], dtype=torch.bfloat16))
