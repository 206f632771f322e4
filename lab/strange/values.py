"""Values that a caller may pass by mistake, by name: wrong types, limits of numbers, empty and endless things."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch


class Unprintable:
    """An object whose description fails."""

    def __repr__(self) -> str:
        raise ValueError("this object cannot be shown")


class Unequal:
    """An object that can be compared to nothing."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("this object cannot be compared")

    def __hash__(self) -> int:
        raise ValueError("this object cannot be a key")


@dataclass(frozen=True, slots=True)
class Strange:
    """A value, and how it is written."""

    name: str
    value: Any


def strange_values() -> list[Strange]:
    """Fresh ones: a list that is changed by the caller who takes it hurts no other."""
    return [Strange(name, value) for name, value in _named()]


def _named() -> Iterator[tuple[str, Any]]:
    plain: Any
    for plain in (
        None,
        True,
        False,
        -1,
        0,
        1,
        2,
        3,
        7,
        61,
        4096,
        10**6,
        2**31 - 1,
        2**31,
        -(2**31) - 1,
        2**40,
        2**63 - 1,
        2**63,
        2**64,
        10**30,
        -(10**30),
        0.0,
        -0.0,
        0.5,
        1.0,
        1.5,
        -1.5,
        1e-300,
        1e-30,
        1e30,
        1e39,
        1e308,
        -1e39,
        float("nan"),
        float("inf"),
        -float("inf"),
        "",
        " ",
        "x",
        "0",
        "1",
        "1.5",
        "nan",
        "none",
        "None",
        "auto",
        "true",
        "ngram",
        "zoo:",
        "zoo:target",
        "zoo:nothing",
        "[ngram]",
        "[]",
        "/",
        ".",
        "~nobody-of-that-name/x",
        "\0",
        "a\nb",
        "\ud800",
        "é" * 3,
        "5GB",
        "1e999",
        "9" * 400,
        "=",
        "a=b",
        "{}",
        "{",
        b"",
        b"x",
        (),
        [],
        {},
        set(),
        (1,),
        [1],
        [-1],
        [0, 0],
        [None],
        [""],
        ["x"],
        [[]],
        [[1]],
        [1.5],
        [float("nan")],
        [2**40],
        [True],
        ["ngram"],
        [["ngram"]],
        {"x": 1},
        {1: 2},
        {1: None},
        {1: "x"},
        {"1": 1},
        {None: None},
        {1: float("inf")},
        {1: float("nan")},
        {1: 1e39},
        {1: -1e39},
        {-1: 1.0},
        {2**40: 1.0},
        {0.5: 1.0},
        {"method": "ngram"},
        {"method": None},
        {"method": ["ngram"]},
        {"method": "ngram", "max_ngram": "x"},
        {"method": "ngram", 1: 2},
        {"name": "ngram"},
        {(): ()},
        1j,
        range(3),
        frozenset({1}),
        Ellipsis,
        NotImplemented,
        int,
        Decimal("1.5"),
        Fraction(1, 2),
        Path("x"),
        Path("/"),
    ):
        yield repr(plain), plain
    yield "10**5000", 10**5000
    yield "-(10**5000)", -(10**5000)
    yield "'x' * 5000", "x" * 5000
    yield "'/x' * 3000", "/x" * 3000
    yield "[1] * 100_000", [1] * 100_000
    yield "{i: -inf for i in range(61)}", {i: -float("inf") for i in range(61)}
    yield "{i: -1e38 for i in range(61)}", {i: -1e38 for i in range(61)}
    yield "{i: 1e38 for i in range(61)}", {i: 1e38 for i in range(61)}
    yield "nested lists", _nest(200)
    yield "lambda: 0", lambda: 0
    yield "object()", object()
    yield "Unprintable()", Unprintable()
    yield "Unequal()", Unequal()
    yield "[Unprintable()]", [Unprintable()]
    yield "{1: Unequal()}", {1: Unequal()}
    yield "a generator", (i for i in range(3))
    for array in (
        np.int64(3),
        np.int8(-1),
        np.uint64(2**64 - 1),
        np.float32(0.5),
        np.float64("nan"),
        np.bool_(True),
        np.str_("ngram"),
        np.array([1, 2]),
        np.array(3),
        np.array([]),
        np.array(["x"]),
    ):
        yield f"numpy {array!r}", array
    for tensor in (
        torch.tensor(3),
        torch.tensor(-1),
        torch.tensor(0.5),
        torch.tensor(True),
        torch.tensor([1, 2]),
        torch.tensor([3]),
        torch.tensor(float("nan")),
        torch.zeros(0),
        torch.empty((), device="meta"),
    ):
        yield f"torch {tensor!r}", tensor
    yield "torch.float32", torch.float32
    yield "torch.device('cpu')", torch.device("cpu")


def _nest(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def as_words(value: Any) -> str:
    """The value as a user would type it after a flag; a NUL cannot be typed."""
    try:
        text = value if isinstance(value, str) else str(value)
    except (ValueError, RuntimeError):  # a number of 5000 digits, a tensor without values
        text = "unprintable"
    return text.replace("\0", "")[:10_000]


def as_toml(value: Any) -> str | None:
    """The value as a TOML file can hold it; None if it cannot."""
    if isinstance(value, bool):
        return str(value).lower()
    if (isinstance(value, int) and abs(value) < 10**100) or isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\' else c for c in value) + '"'
    if isinstance(value, list | tuple):
        listed = [as_toml(one) for one in value[:50]]
        return f"[{', '.join(part for part in listed if part is not None)}]"
    if isinstance(value, Mapping):
        pairs = [(as_toml(str(key)), as_toml(one)) for key, one in value.items()]
        return "{" + ", ".join(f"{key} = {one}" for key, one in pairs if one is not None) + "}"
    return None
