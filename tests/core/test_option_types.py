"""Which values fit which declared types, and the types in words."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from outdraft.options.shown import WIDTH, shown
from outdraft.options.types import fits, in_words, own_types

FIT = [
    (3, int),
    (3, float),
    (0.5, float),
    (True, bool),
    ("a", str),
    (Path("a"), str),
    (None, int | None),
    (2, int | None),
    ("b", Literal["a", "b"]),
    ([1, 2], tuple[int, ...]),
    ((), tuple[int, ...]),
    ([[1], []], tuple[tuple[int, ...], ...]),
    (["x", {"method": "y"}], Sequence[str | Mapping[str, Any]]),
    ({}, str | Mapping[str, Any]),
    (object(), object),
]
UNFIT = [
    ("3", int),
    (3.0, int),
    (True, int),
    (True, float),
    ("0.5", float),
    (1, bool),
    (5, str),
    (None, int),
    ("c", Literal["a", "b"]),
    (5, tuple[int, ...]),
    ("12", tuple[int, ...]),
    ([1, "2"], tuple[int, ...]),
    ([3], Sequence[str | Mapping[str, Any]]),
    ([], str | Mapping[str, Any]),
]


@pytest.mark.parametrize(("value", "hint"), FIT)
def test_what_fits(value, hint):
    assert fits(value, hint)


@pytest.mark.parametrize(("value", "hint"), UNFIT)
def test_what_does_not(value, hint):
    assert not fits(value, hint)


def test_words():
    assert in_words(int | None) == "a whole number or nothing"
    assert in_words(Literal["a", "b"]) == "one of 'a', 'b'"
    assert in_words(tuple[tuple[float, ...], ...]) == "a list, each a list, each a number"
    assert in_words(str | Mapping[str, Any]) == "a text or a table"
    assert in_words(Mapping[int, float] | None) == "a table from a whole number to a number or nothing"


def test_a_long_table_of_numbers_is_looked_at_as_a_short_one():
    numbers = {i: 0.5 for i in range(1000)}
    assert fits(numbers, Mapping[int, float]) and own_types(numbers, Mapping[int, float]) == numbers
    assert own_types(numbers, Mapping[int, float]) is not numbers
    for wrong in ({999: math.nan}, {999: "a"}, {"999": 1.0}, {2**64: 1.0}):
        assert not fits(numbers | wrong, Mapping[int, float])
    assert fits(numbers | {999: 1}, Mapping[int, float])


def test_what_is_shown_of_large_values_is_their_beginning():
    for value in ({i: i for i in range(10**5)}, "x" * 10**6, b"x" * 10**6, list(range(10**5))):
        assert shown(value) == repr(value)[: WIDTH - 3] + "..."
    assert shown({1: "a"}) == "{1: 'a'}" and shown("x" * 70) == repr("x" * 70)
