"""The measured peak counts what it does."""

import pytest

from outdraft.kernels.decoder.peak import dot_peak
from outdraft.kernels.library import KINDS, library

native = library()
pytestmark = pytest.mark.skipif(native is None, reason="the native kernels are not built here (no C++ compiler)")
kinds = [kind for kind in KINDS if native is not None and native.od_has_kernels(kind.encode())]


@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize("bits", [16, 8])
def test_work_is_counted_by_thread_and_turn(kind: str, bits: int):
    one = native.od_dot_work(bits, 10, 1, kind.encode())
    assert one > 0
    assert native.od_dot_work(bits, 30, 2, kind.encode()) == 6 * one
    assert dot_peak(bits, kind=kind) > 0


def test_what_is_not_built_is_an_error():
    assert native.od_dot_work(16, 10, 1, b"nonsense") == 0
    assert "not built" in native.od_error().decode()
