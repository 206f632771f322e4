"""What an engine remembers of a machine and a model: where the next one begins, and never what it writes."""

import json
import os

import pytest
import torch

from outdraft.core.events import StepEvent, StepTimes
from outdraft.engine.assembly import remembered
from outdraft.engine.assembly.remembered import SWITCH, Place, Remembering
from outdraft.engine.llm import LLM
from outdraft.kernels.library import library
from outdraft.models.files.load import save_model
from outdraft.options.params import SamplingParams
from outdraft.testing.tiny import random_decoder, tiny_config

native = pytest.mark.skipif(library() is None, reason="no native kernels here")
PROMPTS = [{"prompt_token_ids": ids} for ids in ([1, 2, 3, 1, 2, 3, 1, 2], [7, 5, 7, 5, 7, 5], [4, 9, 11])]
WAYS = [
    SamplingParams(max_tokens=32, ignore_eos=True),
    SamplingParams(max_tokens=32, ignore_eos=True, temperature=0.9, seed=5),
]


@pytest.fixture
def target(tmp_path):
    place = tmp_path / "target"
    save_model(random_decoder(tiny_config(hidden=128, inner=128, layers=2), dtype=torch.bfloat16, exact=False), place)
    return place


@pytest.fixture
def pace(tmp_path, monkeypatch):
    """Where it is kept, which begins empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH)
    return tmp_path / "cache" / "outdraft" / "pace"


def texts(llm):
    return [one.token_ids for params in WAYS for one in llm.generate(PROMPTS, params)]


def policy_of(llm):
    return llm.engine.parts.policy


@native
def test_the_same_text_with_a_full_an_empty_and_a_damaged_memory(target, pace):
    wanted = texts(LLM(target, drafter="none"))
    assert not pace.exists()  # plain decoding has nothing to remember
    assert texts(LLM(target)) == wanted
    (file,) = pace.iterdir()
    kept = json.loads(file.read_text())
    assert kept["kept"]["costs"]["passes"]["level"] > 0
    warm = LLM(target)
    assert policy_of(warm).inner._arms[0].num_tried == 1 and texts(warm) == wanted

    absurd = json.loads(file.read_text())  # it says that guesses cost nothing and are always right
    for record in absurd["kept"]["arms"].values():
        record["hazards"] = [[[[0.0, 50.0]] * 8] * 4] * 2
    absurd["kept"]["costs"]["drafts"] = [
        {"1": {"level": 1e-9, "shapes": [[4, 1.0, 9]]}} for _ in absurd["kept"]["costs"]["drafts"]
    ]
    file.write_text(json.dumps(absurd))
    misled = LLM(target)
    assert policy_of(misled).inner._arms[0].num_tried == 1 and texts(misled) == wanted

    for damage in ("", "{", "[]", "null", '{"format": 2}', json.dumps({**kept, "kept": {"costs": 3}}), "\x00" * 999):
        file.write_text(damage)
        llm = LLM(target)
        assert policy_of(llm).inner._arms[0].num_tried == 0
        assert texts(llm) == wanted
        assert json.loads(file.read_text())["of"] == kept["of"]  # made again


@native
def test_another_model_another_drafter_and_another_rule_have_their_own(target, pace, tmp_path):
    texts(LLM(target))
    texts(LLM(target, drafter="ngram"))
    texts(LLM(target, policy={"name": "auto", "memory": 8.0}))
    assert len(list(pace.iterdir())) == 3
    os.utime(target / "config.json", ns=(1, 1))  # another model in the same place
    assert policy_of(LLM(target)).inner._arms[0].num_tried == 0
    texts(LLM(target))
    assert len(list(pace.iterdir())) == 4


@native
def test_it_can_be_switched_off(target, pace, monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    llm = LLM(target)
    texts(llm)
    assert not pace.exists() and not isinstance(policy_of(llm), Remembering)


@native
def test_a_place_that_cannot_be_written_to_is_left_alone(target, pace, caplog):
    pace.parent.mkdir(parents=True)
    pace.write_text("a file where a folder should be")
    assert texts(LLM(target)) == texts(LLM(target, drafter="none"))
    assert not caplog.records


class Clerk:
    """A policy that keeps a number."""

    def __init__(self, kept=None):
        self.told, self.kept = [], kept

    def plan(self, seqs):
        self.told.append("plan")
        return list(seqs)

    def update(self, events):
        self.told.append("update")

    def end(self, seqs):
        self.told.append("end")

    def spare(self, seq, crowd):
        return frozenset({crowd})

    def keep(self):
        return self.kept

    def recall(self, kept):
        if "bad" in kept:
            raise ValueError("bad")
        self.kept = kept


def test_it_is_written_when_texts_end_and_not_at_each(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(remembered, "monotonic", lambda: now[0])
    place, times = Place(path=tmp_path / "pace" / "a.json", of={"model": "m"}), []
    policy = Remembering(Clerk({"n": 1}), place)
    for second in range(0, 200, 5):
        now[0] = float(second)
        before = place.path.stat().st_mtime_ns if place.path.exists() else None
        policy.inner.kept = {"n": second}
        policy.end([])
        if before is None or json.loads(place.path.read_text())["kept"] == {"n": second}:
            times.append(second)
    assert times == [0, 20, 60, 140]  # the pauses double
    policy.plan([1])
    policy.update([StepEvent(seq_id=0, times=StepTimes())])
    assert policy.inner.told[-2:] == ["plan", "update"]
    assert policy.spare(None, 3) == {3}
    assert Remembering(Clerk(), place).inner.kept == {"n": 140}
    assert Remembering(Clerk(), Place(path=place.path, of={"model": "other"})).inner.kept is None
    nothing = Remembering(Clerk(), Place(path=tmp_path / "b.json", of={}))
    nothing.end([])
    assert not (tmp_path / "b.json").exists()  # there is nothing to keep


def test_sizes_are_limited(tmp_path, monkeypatch):
    place = Place(path=tmp_path / "a.json", of={})
    assert not place.write({"n": "x" * (1 << 19)}) and not place.path.exists()
    assert place.write({"n": 1}) and place.read() == {"n": 1}
    place.path.write_text(json.dumps({"format": 1, "of": {}, "kept": {"n": 1}}) + " " * (1 << 19))
    assert place.read() is None
    monkeypatch.setattr(remembered, "_MOST_FILES", 3)
    for number in range(6):
        one = Place(path=tmp_path / f"{number}.json", of={})
        one.write({})
        os.utime(one.path, ns=(number, number))
    assert len(list(tmp_path.glob("*.json"))) == 3 and (tmp_path / "5.json").exists()
    assert not [one for one in tmp_path.iterdir() if "part" in one.name]


def test_what_a_policy_refuses_is_not_obeyed(tmp_path):
    place = Place(path=tmp_path / "a.json", of={})
    place.write({"bad": 1})
    policy = Remembering(Clerk({"n": 2}), place)
    assert policy.inner.kept == {"n": 2}
    policy.end([])
    assert place.read() == {"n": 2}


@native
def test_a_cache_that_is_off_remembers_nothing(target, pace, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_CACHE", "off")
    texts(LLM(target))
    assert not pace.exists()
    monkeypatch.delenv("OUTDRAFT_CACHE")
    texts(LLM(target))
    assert list(pace.iterdir())
