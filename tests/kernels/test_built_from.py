"""A library with other functions or structures is refused by name, before anything of it is called."""

import _ctypes
import re
from ctypes import Structure, c_int, c_int64
from pathlib import Path
from types import SimpleNamespace

import pytest

from outdraft.kernels import library as home
from outdraft.kernels.built_from import find_stranger
from outdraft.options.errors import CapabilityError

NATIVE = Path(home.__file__).parent / "native"


class Ours(Structure):
    _fields_ = (("a", c_int), ("b", c_int64))


class Sizes(SimpleNamespace):
    """A library whose structures have these sizes."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(od_known=None, od_size_of=lambda name: sizes.get(name.decode(), -1))


def test_sizes_and_functions_are_compared():
    assert find_stranger(Sizes(Ours=16), ["od_known"], {"Ours": Ours}) is None
    assert find_stranger(Sizes(Ours=24), ["od_known"], {"Ours": Ours}) == "Ours has 24 bytes there, and 16 here"
    assert find_stranger(Sizes(), ["od_known"], {"Ours": Ours}) == "Ours has -1 bytes there, and 16 here"
    assert find_stranger(Sizes(Ours=16), ["od_new"], {"Ours": Ours}) == "it has no function od_new"
    assert find_stranger(SimpleNamespace(), [], {}) == "it has no function od_size_of"


@pytest.mark.skipif(home.library() is None, reason="the kernels are not built")
def test_the_library_that_runs_belongs_to_these_sources():
    native = home.require_library()
    assert find_stranger(native, home.SIGNATURES, home.STRUCTURES) is None
    for name in home.STRUCTURES:
        longer = type("Longer", (home.STRUCTURES[name],), {"_fields_": [("more", c_int64)]})
        changed = home.STRUCTURES | {name: longer}
        assert find_stranger(native, [], changed).startswith(f"{name} has "), "one field more is seen"


def test_every_structure_is_compared():
    """Those that a signature names, and those that they point to."""
    text = "".join((NATIVE.parent / name).read_text() for name in ("declared.py", "index_types.py"))
    declared = set(re.findall(r"^class (C\w+)\(Structure\)", text, re.MULTILINE))
    assert {one.__name__ for one in home.STRUCTURES.values()} == declared


@pytest.fixture
def stale(monkeypatch: pytest.MonkeyPatch):
    """In place of ours some other library stands there."""
    monkeypatch.setattr(home, "_FILE", Path(_ctypes.__file__))
    monkeypatch.delenv("OUTDRAFT_KERNELS", raising=False)
    home._load.cache_clear()
    home._kind_for.cache_clear()
    yield
    home._load.cache_clear()
    home._kind_for.cache_clear()


def test_a_stale_library_is_as_none(stale, caplog: pytest.LogCaptureFixture):
    assert home.library() is None and home.wanted_kind() is None, "PyTorch computes"
    assert "were not built from these sources" in caplog.text and "until then PyTorch computes" in caplog.text
    assert len(caplog.records) == 1, "it is said once"
    with pytest.raises(CapabilityError, match=r"not built from these sources \(it has no function od_\w+\): reinstall"):
        home.require_library()


def test_a_damaged_library_is_as_none(stale, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "_native.so").write_bytes(b"\x7fELF" + bytes(100))
    monkeypatch.setattr(home, "_FILE", tmp_path / "_native.so")
    assert home.library() is None
    with pytest.raises(CapabilityError, match="reinstall"):
        home.require_library()
