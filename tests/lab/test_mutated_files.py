"""A seeded sample of damaged files: `python -m lab.mutated_files` tries 5,000 of them."""

import json
import struct
from pathlib import Path
from random import Random

import pytest

from lab.mutated_files import cases
from lab.mutated_files.mutate import change_in_place, damage_bytes, damage_json
from lab.mutated_files.stage import damage_safetensors
from lab.sweep.run import sweep


def test_damaged_files_are_read_or_refused():
    numbers = sorted(Random(12).sample(range(5000), 150))
    verdicts = list(sweep("lab.mutated_files.cases", iter(numbers)))
    assert {"held", "is"} <= {one.name.partition(": ")[2].split(" ")[0].strip(",") for one in verdicts}
    bad = [f"{one.end}: {one.name}: {one.said}" for one in verdicts if not one.is_good]
    assert not bad, "\n".join(bad)
    refused = [one.name.partition(":")[0] for one in verdicts if one.end == "refused"]
    kinds = {"gguf", "llama", "int4", "store", "recipe.toml"}  # packed weights are made again
    assert {Path(name).parts[0] for name in refused} >= kinds, "damage must be damage"


def test_damage_changes_the_file():
    document = json.dumps({"a": [1, {"b": "c"}], "d": 2}).encode()
    file = struct.pack("<Q", len(document)) + document + bytes(range(64))
    for damage, data in ((damage_bytes, file), (damage_json, document), (damage_safetensors, file)):
        made = [damage(data, Random(n))[1] for n in range(60)]
        assert sum(one == data for one in made) < 10 and len(set(made)) > 35, damage


def test_a_file_that_is_held_is_changed_and_stays_the_same_file(tmp_path: Path):
    path, data, lengths = tmp_path / "file", bytes(range(256)) * 40, set()
    for number in range(40):
        path.write_bytes(data)
        before = path.stat().st_ino
        change_in_place(data, Random(number))[1](path)
        assert path.stat().st_ino == before and path.read_bytes() != data
        lengths.add(path.stat().st_size)
    assert len(lengths) > 3 and max(lengths) == len(data)


def test_a_case_that_waits_for_ever_is_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "waiting.py").write_text(_WAITING)
    (verdict,) = sweep("waiting", iter([0]), seconds=0.1)
    assert verdict.end == "hang" and "open" in verdict.where


@pytest.mark.parametrize("kind", cases._NO_FILES)
def test_what_is_no_file(tmp_path: Path, kind: str):
    path = tmp_path / "file"
    cases._NO_FILES[kind](path)
    assert not path.is_file()


_WAITING = """
import os
from lab.sweep.case import Case
def load(directory, seed):
    os.mkfifo(directory / "pipe")
    return lambda number: Case(name="a pipe", run=lambda: open(directory / "pipe"))
"""
