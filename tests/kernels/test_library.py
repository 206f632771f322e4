"""That the kernels are there where they can be: without this, every other test here could be skipped unseen."""

import shutil

import pytest

from outdraft.core.errors import ConfigError
from outdraft.kernels.library import library, wanted_kind


@pytest.mark.skipif(shutil.which("g++") is None, reason="nothing to build the kernels with")
def test_they_are_built_where_a_compiler_is():
    assert library() is not None, "reinstall with `pip install -e .` and read what the compiler says"


def test_an_unknown_kind_is_refused(monkeypatch):
    monkeypatch.setenv("OUTDRAFT_KERNELS", "avx1024")
    with pytest.raises(ConfigError, match="avx1024"):
        wanted_kind()
