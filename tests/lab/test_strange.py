"""A seeded sample of strange values: `python -m lab.strange` tries 5,000 of them."""

from random import Random

from lab.strange.command_arguments import command_arguments
from lab.strange.stage import Stage
from lab.sweep.case import Case, judge
from lab.sweep.run import sweep


def test_strange_values_are_taken_or_refused():
    numbers = sorted(Random(10).sample(range(5000), 150))
    verdicts = sweep("lab.strange.cases", iter(numbers))
    bad = [f"{one.end}: {one.name}: {one.said}" for one in verdicts if not one.is_good]
    assert not bad, "\n".join(bad)


def test_flags_of_what_makes_drafts_are_tried_and_write_in_the_stage_alone(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    stage = Stage(tmp_path)
    found = {one.name.removeprefix("outdraft "): one.use for one in command_arguments(stage)}
    tried = {  # an argument, a value -> how it ends, and what was written
        ("cut --layers", "0,x"): ("refused", None),
        ("cut --layers", 9): ("refused", None),
        ("cut --layers", 1): ("accepted", "out-cut/config.json"),
        ("cut --out", "1.5"): ("accepted", "1.5/config.json"),
        ("convert --to", "nowhere"): ("refused", None),
        ("convert --out", "1.5"): ("accepted", "1.5/config.json"),
        ("train draft_model --loop", "x=1"): ("refused", None),
        ("train answers --max-tokens", -1): ("refused", None),
        ("train check --dtype", "int8"): ("refused", None),
    }
    for (name, value), (end, written) in tried.items():
        verdict = judge(0, Case(name=f"{name} = {value}", run=lambda name=name, value=value: found[name](value)))
        assert verdict.end == end, verdict
        assert written is None or (stage.directory / "here" / written).exists(), name
    assert not list((tmp_path / "elsewhere").iterdir())
    assert "train tree --nodes" in found and "train tree --loss" not in found
