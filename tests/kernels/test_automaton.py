"""The suffix automaton: match lengths and places equal brute force, natively and in Python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.kernels.library import library
from outdraft.kernels.text_index.automaton import AutomatonReference, Cursor, NativeAutomaton, make_automaton

native = pytest.mark.skipif(library() is None, reason="the kernels are not built")
KINDS = [AutomatonReference, pytest.param(NativeAutomaton, marks=native)]
texts = st.lists(st.integers(0, 2), max_size=60)


def occurrences(text, span):
    return [at + len(span) - 1 for at in range(len(text) - len(span) + 1) if text[at : at + len(span)] == span]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=200)
@given(texts)
def test_own_matches_equal_the_longest_suffix_that_came_before(kind, text):
    automaton = kind()
    for n in range(1, len(text) + 1):
        automaton.extend(text[n - 1 : n])
        known = text[:n]
        longest = next((m for m in range(n - 1, 0, -1) if len(occurrences(known, known[n - m :])) > 1), 0)
        assert automaton.match == longest
        if longest:
            assert automaton.match_end in occurrences(known, known[n - longest :])[:-1]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=200)
@given(texts, texts)
def test_another_texts_matches_equal_its_longest_known_suffix(kind, text, other):
    automaton, cursor = kind(), Cursor()
    automaton.extend(text)
    for n in range(1, len(other) + 1):
        automaton.read(cursor, other[n - 1 : n])
        longest = next((m for m in range(n, 0, -1) if occurrences(text, other[n - m : n])), 0)
        assert cursor.length == longest
        if longest:
            assert automaton.end(cursor) in occurrences(text, other[n - longest : n])


@pytest.mark.parametrize("kind", KINDS)
def test_the_latest_place_counts(kind):
    automaton = kind()
    automaton.extend([1, 2, 7, 1, 2, 8, 1, 2])
    assert (automaton.match, automaton.match_end) == (2, 4)


def test_without_the_kernels_the_reference_serves(monkeypatch):
    monkeypatch.setenv("OUTDRAFT_KERNELS", "off")
    assert isinstance(make_automaton(), AutomatonReference)


@native
def test_the_cursor_of_another_automaton_is_an_error():
    longer, shorter, cursor = NativeAutomaton(), NativeAutomaton(), Cursor()
    longer.extend(range(1000))
    longer.read(cursor, range(1000))
    for ask in (lambda: shorter.read(cursor, [1]), lambda: shorter.end(cursor), lambda: shorter.end(Cursor(-1, 0))):
        with pytest.raises(RuntimeError, match="native kernels"):
            ask()
    assert (cursor.state, cursor.length) == (1000, 1000)
