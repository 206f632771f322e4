"""The zoo's models are found by their names, and by nothing else."""

import json

import pytest

from outdraft import zoo
from outdraft.bench.lineup import RIVALS, family
from outdraft.options.errors import ModelLoadError
from outdraft.weights.hub import resolve


def test_a_model_is_found_by_its_name():
    assert resolve("zoo:target") == zoo.path("target") and "target" in zoo.names()


def test_a_name_that_the_zoo_lacks_meets_the_near_miss_and_where_heads_are_made():
    with pytest.raises(ModelLoadError, match="did you mean 'draft'"):
        resolve("zoo:draf")
    with pytest.raises(ModelLoadError, match=r"no 'medusa'.* lab/zoo of the repository"):
        zoo.path("medusa")
    for name in ("..", "", "target/../target", "__pycache__"):
        with pytest.raises(ModelLoadError, match="the zoo has no"):
            zoo.path(name)


def test_all_heads_of_a_target_join_the_line_up(tmp_path):
    (tmp_path / "companions.json").write_text(json.dumps({"head": {"medusa": "../later", "other": "../other"}}))
    assert {rival.name for rival in family(tmp_path)} == {*(rival.name for rival in RIVALS), "medusa"}
