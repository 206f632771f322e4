"""Two packages of zoo models: the second is looked at when it is installed, and named when it is not."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from outdraft import zoo
from outdraft.bench.lineup import RIVALS, family, lacking
from outdraft.engine.naming.roles import read_companions
from outdraft.models.files.load import load_model, save_model
from outdraft.options.errors import ModelLoadError
from outdraft.testing.tiny import tiny_model
from outdraft.weights.hub import resolve

SECOND = Path(__file__).parents[2] / "packages/zoo"


@pytest.fixture
def known(monkeypatch):
    """The names that the second package has."""
    monkeypatch.setattr(zoo, "_more", lambda: ["later", "small"])


@pytest.fixture
def installed(tmp_path, monkeypatch, known):
    """A second package with two models, one of which has the name of one of ours."""
    place = tmp_path / "site/outdraft_zoo"
    shutil.copytree(SECOND / "outdraft_zoo", place)
    for name in ("small", "target"):
        save_model(tiny_model(vocab=31, layers=1, seed=1), place / name)
    monkeypatch.syspath_prepend(str(place.parent))
    return place


def test_a_model_of_a_package_that_is_not_installed_names_the_package(known):
    with pytest.raises(ModelLoadError, match=r"zoo:small is in a package .* pip install outdraft-zoo"):
        resolve("zoo:small")
    with pytest.raises(ModelLoadError, match="did you mean 'small'"):
        zoo.path("smal")
    assert "small" not in zoo.names() and zoo.is_missing("zoo:small")
    assert not zoo.is_missing("zoo:target") and not zoo.is_missing("../draft")


def test_a_model_of_the_second_package_is_found_by_its_name(installed):
    assert "small" in zoo.names() and resolve("zoo:small") == installed / "small"
    assert load_model("zoo:small").config.vocab_size == 31
    assert zoo.path("target").parent == Path(zoo.__file__).parent  # ours stay ours
    with pytest.raises(ModelLoadError, match="pip install outdraft-zoo"):
        zoo.path("later")  # an older package, without it
    assert not zoo.is_missing("zoo:small") and zoo.is_missing("zoo:later")


def test_a_folder_without_a_model_is_none(installed):
    (installed / "notes").mkdir()
    for name in ("notes", "..", "", "small/../small"):
        with pytest.raises(ModelLoadError, match="the zoo has no"):
            zoo.path(name)


def test_all_heads_that_are_there_join_and_the_others_are_named(tmp_path, known, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    (target / "companions.json").write_text(json.dumps({"head": {"medusa": "zoo:later", "hydra": "../hydra"}}))
    ours = {rival.name for rival in RIVALS}
    assert {rival.name for rival in family(target)} == {*ours, "hydra"} and lacking(target) == ["medusa"]
    assert read_companions(target)["head"]["medusa"] == "zoo:later"  # its recipe says what to install
    place = tmp_path / "site/outdraft_zoo/later"
    place.mkdir(parents=True)
    (place.parent / "__init__.py").write_text("")
    (place / "config.json").write_text("{}")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert {rival.name for rival in family(target)} == {*ours, "hydra", "medusa"} and lacking(target) == []


def test_the_second_package_belongs_to_this_version_and_holds_weights_alone():
    told = tomllib.loads((SECOND / "pyproject.toml").read_text())["project"]
    ours = tomllib.loads((SECOND.parents[1] / "pyproject.toml").read_text())["project"]["version"]
    assert told["name"] == zoo.PACKAGE and told["version"] == ours and told["dependencies"] == [f"outdraft=={ours}"]
    assert [path.name for path in SECOND.rglob("*.py")] == ["__init__.py"]
    assert (SECOND / "outdraft_zoo").name == zoo.MODULE


def test_what_is_said_to_be_in_the_second_package_is_there():
    there = {path.parent.name for path in (SECOND / "outdraft_zoo").glob("*/config.json")}
    assert set(zoo._more()) == there and not there & {p.parent.name for p in Path(zoo.__file__).parent.glob("*/*.json")}
