"""The planted faults of the C++ belong to the sources as they are."""

from pathlib import Path

import pytest

from lab.native_mutants import FAULTS

NATIVE = Path("src/outdraft/kernels/native")


@pytest.mark.parametrize("file", FAULTS)
def test_each_fault_has_one_place(file):
    text = (NATIVE / file).read_text()
    assert [old for old, _ in FAULTS[file] if text.count(old) != 1] == []
    assert all(old != new for old, new in FAULTS[file])
