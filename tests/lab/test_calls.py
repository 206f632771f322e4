"""What a round of the engine calls has a ceiling, and the count is the same each time."""

import sys

import pytest

from lab.calls import FIRST, Side, counted
from outdraft.kernels.library import library
from outdraft.options.shown import shown

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")
# calls, calls in C, of rounds that keep as many tokens; they only fall
MOST = {"none": (83, 121), "ngram": (240, 503), "default": (331, 640)}


@pytest.mark.parametrize("drafter", MOST)
def test_a_round_calls_no_more_than_it_did(drafter, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_KERNELS", "portable")  # AMX has other bits, hence rounds that keep more tokens
    rounds = counted(drafter)
    for found, most in zip((rounds.num_calls, rounds.num_in_c), MOST[drafter], strict=True):
        assert found <= most, sorted(rounds.calls.items(), key=lambda one: -one[1])[:20]
        assert found >= 0.8 * most, "a ceiling far above what is called"


def test_calls_count_from_the_function_that_begins_a_round():
    side = Side(begins=shown.__code__)
    sys.setprofile(side.note)
    try:
        shown("of an earlier text")
        side.begin()
        for _ in range(FIRST + 3):
            shown("a")
    finally:
        sys.setprofile(None)
    assert side.before == 1 and len(side.calls) == FIRST + 4
    assert side.means(side.calls) == {"options/shown.py:shown": 1.0}
