"""Declared types are checked in one wording, arguments and fields alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from outdraft.options.checked import check_arguments, check_fields, check_value
from outdraft.options.errors import ConfigError, RequestError
from outdraft.options.near_miss import near_miss
from outdraft.options.paths import user_path
from outdraft.options.shown import WIDTH, shown


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no words")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    count: int = 1
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    pairs: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, of="the record")


@check_arguments
def take(first: int, *, share: float = 0.5, table: Mapping[str, Any] | None = None, **others: Any) -> tuple[Any, ...]:
    return first, share, table, others


def test_arguments():
    taken = take(np.int8(3), share=torch.tensor(0.25), table={"a": 1}, more=Unprintable)
    assert taken == (3, 0.25, {"a": 1}, {"more": Unprintable})
    assert type(taken[0]) is int and type(taken[1]) is float
    with pytest.raises(ConfigError, match=r"first='3' must be a whole number$"):
        take("3")
    with pytest.raises(ConfigError, match=r"table=.*must be a table or nothing"):
        take(3, table={1: 2})


def test_fields():
    made = Record(count=np.int64(2), names=["a"], pairs=[["*.down", 8]])
    assert made == Record(count=2, names=("a",), pairs=(["*.down", 8],)) and type(made.count) is int
    assert Record(sizes=(3, 2**64 - 1, -(2**63))).sizes == (3, 2**64 - 1, -(2**63))
    assert Record(sizes=[np.int64(3), 2]).sizes == (3, 2)
    for given in ({"sizes": [1, 2**64]}, {"sizes": [1, True]}, {"sizes": [1, "2"]}, {"names": ["a", 1]}):
        with pytest.raises(ConfigError, match=f"{next(iter(given))}=.* of the record must be"):
            Record(**given)
    for given in ({"count": 1.0}, {"names": "a"}, {"pairs": [["a"]]}, {"pairs": [[8, "a"]]}, {"count": 2**64}):
        with pytest.raises(ConfigError, match=f"{next(iter(given))}=.* of the record must be"):
            Record(**given)


def test_anything_can_be_shown_and_compared():
    assert (
        shown(Unprintable()) == "<a value of type Unprintable>" == shown([Unprintable()]).replace("list", "Unprintable")
    )
    assert len(shown("x" * 9999)) == WIDTH and "\n" not in shown(np.zeros((9, 9)))
    with pytest.raises(RequestError, match="a=<a value of type int> must be a whole number, of at most 64 bits"):
        check_value("a", 10**5000, int, error=RequestError)
    assert near_miss(None, ["none"]) == near_miss(b"none", ["none"]) == ""
    assert near_miss("nnoe", ["none"]) == ", did you mean 'none'?"


@pytest.mark.parametrize("given", ["a\0b", "x" * 5000, "~no-user-of-that-name/x", 3, None, b"x"])
def test_what_is_no_path_is_refused(given: object):
    with pytest.raises(ConfigError, match="can be no path"):
        user_path(given)


def test_a_path_need_not_exist(tmp_path):
    assert user_path(str(tmp_path / "a/b")) == tmp_path / "a/b"
