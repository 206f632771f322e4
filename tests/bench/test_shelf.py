"""Things are made once, by what they are made of, and never half."""

from pathlib import Path

import pytest

from outdraft.bench.shelf import Shelf
from outdraft.options.errors import ConfigError


def test_made_once_for_each_stuff(tmp_path: Path):
    shelf, calls = Shelf(tmp_path / "a" / "b"), []

    def make(path: Path) -> None:
        calls.append(path)
        path.write_text("x")

    place = shelf.get("thing.gguf", [1], make)
    assert place.suffix == ".gguf" and place.name.startswith("thing-") and place.read_text() == "x"
    assert shelf.get("thing.gguf", [1], make) == place and len(calls) == 1
    assert shelf.get("thing.gguf", [2], make) != place and len(calls) == 2


def test_an_interrupted_one_is_not_there(tmp_path: Path):
    def stop(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Shelf(tmp_path).get("thing", [1], stop)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--cache"):
        Shelf(tmp_path / "file").get("thing", [1], lambda path: path.write_text("x"))


def test_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Shelf().root == tmp_path / "outdraft"
