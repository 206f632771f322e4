"""A draft's record of its target beside the target that is served."""

import json
import shutil

import pytest
import torch

from outdraft import LLM
from outdraft.core.learner_registry import find_learner
from outdraft.models.files.load import load_model
from outdraft.models.networks.mark import norm_mark
from outdraft.testing.tiny import tiny_model
from outdraft.weights.hub import resolve
from outdraft.weights.known import usual_model


@pytest.fixture
def draft(tmp_path):
    """The zoo's EAGLE-3 draft; what is given changes what its record says of the target."""

    def made(**change):
        place = tmp_path / "draft"
        shutil.copytree(resolve(usual_model("zoo:eagle3")[0]), place)
        record = json.loads((place / "training.json").read_text())
        record["target"] = {key: one for key, one in (record["target"] | change).items() if one is not None}
        (place / "training.json").write_text(json.dumps(record))
        return place

    return made


def served(place, caplog, **more):
    with LLM("zoo:target", drafter="eagle3", head=str(place), **more):
        return [one.getMessage() for one in caplog.records if "another target" in one.getMessage()]


@pytest.mark.parametrize("more", [{}, {"dtype": "float32"}, {"precision": "draft-int4"}])
def test_a_draft_of_this_target_brings_no_word(draft, caplog, more):
    assert served(draft(), caplog, **more) == []


@pytest.mark.logs_faults
def test_a_draft_of_another_target_is_named_with_the_cure(draft, caplog):
    place = draft(norm="0123456789abcdef")
    (said,) = served(place, caplog)
    assert f"{place} was trained for another target" in said and "0123456789abcdef" in said
    assert f"--init {place}" in said


@pytest.mark.logs_faults
@pytest.mark.parametrize("kind", ["ctc", "early_exit"])
def test_heads_of_another_target_are_named_too(kind, tmp_path, caplog):
    learner = find_learner(kind)
    learner.new(learner.options(), load_model(resolve("zoo:target"), torch.float32), 0).save(tmp_path)
    (tmp_path / "training.json").write_text(json.dumps({"target": {"norm": "0123456789abcdef"}}))
    with LLM("zoo:target", drafter={"name": kind, "model": str(tmp_path)}):
        assert [f"{tmp_path} was trained for another target" in one.getMessage() for one in caplog.records] == [True]


@pytest.mark.logs_faults
def test_a_draft_inside_another_drafter_is_named_too(draft, caplog):
    place = draft(norm="0123456789abcdef")
    inner = [{"method": "eagle3", "model": str(place)}, "ngram"]
    with LLM("zoo:target", drafter={"name": "several", "drafters": inner}):
        assert any(f"{place} was trained for another target" in one.getMessage() for one in caplog.records)


@pytest.mark.parametrize("damage", ["no mark", "no record", "no JSON", "no object"])
def test_without_a_mark_there_is_no_word(draft, caplog, damage):
    place = draft(norm=None)
    if damage == "no record":
        (place / "training.json").unlink()
    elif damage != "no mark":
        (place / "training.json").write_text({"no JSON": "{", "no object": "[]"}[damage])
    assert served(place, caplog) == []


def test_another_number_format_leaves_the_mark_and_training_does_not():
    model = tiny_model(vocab=61, layers=2, seed=1, dtype=torch.bfloat16)
    mark = norm_mark(model)
    assert norm_mark(tiny_model(vocab=61, layers=2, seed=1, dtype=torch.float32)) == mark
    with torch.no_grad():
        model.final_norm.weight[0] += 0.01
    assert norm_mark(model) != mark
