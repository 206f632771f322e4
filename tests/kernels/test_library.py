"""That the kernels are there where they can be: without this, every other test here could be skipped unseen."""

import shutil

import pytest

from outdraft.kernels.library import _load, library, wanted_kind, why_none
from outdraft.options.errors import ConfigError


@pytest.mark.skipif(shutil.which("g++") is None, reason="nothing to build the kernels with")
def test_they_are_built_where_a_compiler_is():
    assert library() is not None, "reinstall with `pip install -e .` and read what the compiler says"


@pytest.mark.parametrize(("asked", "lines"), [("", 1), ("off", 0)])
def test_a_build_without_them_says_so_once(monkeypatch, caplog, tmp_path, asked: str, lines: int):
    monkeypatch.setattr("outdraft.kernels.library._FILE", tmp_path / "_native.so")
    monkeypatch.setenv("OUTDRAFT_KERNELS", asked)
    _load.cache_clear()
    try:
        assert library() is None and library() is None and "not built" in why_none()
    finally:
        _load.cache_clear()
    assert caplog.text.count("may write another, equally valid text") == lines


def test_an_unknown_kind_is_refused(monkeypatch):
    monkeypatch.setenv("OUTDRAFT_KERNELS", "avx1024")
    with pytest.raises(ConfigError, match="avx1024"):
        wanted_kind()
