"""Whether a value that a user gave fits the type that an option declares, and that type in plain words.

Data in: a value as JSON, TOML or Python gives it, and a type hint; a list fits where a tuple is declared, a whole
number where any number is. Hints that are none of those below fit everything.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    str: ("a text", lambda value: isinstance(value, str | PathLike)),
    NoneType: ("nothing", lambda value: value is None),
    Mapping: ("a table", lambda value: isinstance(value, Mapping)),
}


def fits(value: Any, hint: Any) -> bool:
    """Whether `value` is what `hint` asks for."""
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin in (tuple, Sequence):
        return isinstance(value, list | tuple) and all(fits(one, parts[0]) for one in value)
    return origin not in _KINDS or _KINDS[origin][1](value)


def in_words(hint: Any) -> str:
    """ "a whole number or nothing"."""
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(in_words(part) for part in parts)
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin in (tuple, Sequence):
        return f"a list, each {in_words(parts[0])}"
    return _KINDS[origin][0] if origin in _KINDS else getattr(hint, "__name__", str(hint))
