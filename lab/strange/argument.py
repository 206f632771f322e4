"""One argument of one public entry point, and how to call it with a value there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def keyword(call: Callable[..., object], name: str) -> Callable[[Any], object]:
    """The call of a value under this keyword."""
    return lambda value: call(**{name: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """`use(value)` makes the call; everything else in it is good."""

    name: str
    use: Callable[[Any], object]
