"""Whether a value that a user gave fits the type that is declared for it, and that type in plain words.

Data in: a value as JSON, TOML, Python, numpy or PyTorch gives it, and a type hint; data out: the value in the types of
Python itself. A list fits where a tuple is declared, a whole number where any number is, numpy's and PyTorch's numbers
where Python's do. NaN is no number, and a whole number has at most 64 bits. `Any`, and hints that are no types, take
everything.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

WHOLE = (-(2**63), 2**64 - 1)  # whole numbers that anything here can hold


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and WHOLE[0] <= value <= WHOLE[1]


_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", _is_whole),
    float: ("a number", lambda value: _is_whole(value) or (isinstance(value, float) and not math.isnan(value))),
    str: ("a text", lambda value: isinstance(value, str) or _is_path(value)),
    NoneType: ("nothing", lambda value: value is None),
    PathLike: ("a path", lambda value: isinstance(value, str) or _is_path(value)),
}


def plain(value: Any) -> Any:
    """What a number, or a list, of numpy or PyTorch holds; anything else as it is."""
    if getattr(value, "ndim", None) not in (0, 1) or not hasattr(value, "tolist"):
        return value
    try:
        return value.tolist()
    except (RuntimeError, NotImplementedError):  # a tensor without values
        return value


def fits(value: Any, hint: Any) -> bool:
    """Whether `value` is what `hint` asks for."""
    value, origin, parts = plain(value), get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(isinstance(value, type(part)) and value == part for part in parts)
    if origin in (tuple, Sequence):
        return isinstance(value, list | tuple) and _each_fits(value, origin, parts)
    if origin is Mapping:
        keys, values = parts or (Any, Any)
        return isinstance(value, Mapping) and (
            _is_plain_table(value, keys, values) or all(fits(key, keys) and fits(value[key], values) for key in value)
        )
    if origin in _KINDS:
        return _KINDS[origin][1](value)
    is_class = isinstance(origin, type) and origin is not Any and not getattr(origin, "_is_protocol", False)
    return not is_class or isinstance(value, origin)


def own_types(value: Any, hint: Any) -> Any:
    """A value that fits, in Python's own types: numbers of numpy and PyTorch, and paths where a text is asked."""
    value, origin, parts = plain(value), get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return own_types(value, next(part for part in parts if fits(value, part)))
    if origin in (tuple, Sequence):
        if not _is_record(origin, parts) and _are_plainly(value, parts[0]):
            return value if isinstance(value, tuple) else list(value)
        hints = parts if _is_record(origin, parts) else (parts[0],) * len(value)
        made = [own_types(one, inner) for one, inner in zip(value, hints, strict=True)]
        return tuple(made) if isinstance(value, tuple) else made
    if origin is Mapping:
        keys, values = parts or (Any, Any)
        if _is_plain_table(value, keys, values):
            return dict(value)
        return {own_types(key, keys): own_types(one, values) for key, one in value.items()}
    return fspath(value) if origin is str else value


def in_words(hint: Any) -> str:
    """ "a whole number or nothing"."""
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(in_words(part) for part in parts))
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if _is_record(origin, parts):
        return f"a list of {' and '.join(map(in_words, parts))}"
    if origin in (tuple, Sequence):
        return f"a list, each {in_words(parts[0])}"
    if origin is Mapping:
        is_plain = len(parts) == 2 and Any not in parts  # Mapping[int, float], and not Mapping[str, Any]
        return f"a table from {in_words(parts[0])} to {in_words(parts[1])}" if is_plain else "a table"
    return _KINDS[origin][0] if origin in _KINDS else getattr(hint, "__name__", str(hint))


def _each_fits(values: Sequence[Any], origin: Any, parts: tuple[Any, ...]) -> bool:
    if _is_record(origin, parts):
        return len(values) == len(parts) and all(map(fits, values, parts))
    return _are_plainly(values, parts[0]) or all(fits(one, parts[0]) for one in values)


def _are_plainly(values: Sequence[Any], hint: Any) -> bool:
    """Whether all are texts, or all whole numbers in bounds, or all Python's own other numbers; of a vocabulary or a
    long prompt this is found quickly."""
    if hint not in (str, int, float) or not set(map(type, values)) <= {hint}:
        return False
    if hint is float:
        return not any(map(math.isnan, values))
    return hint is str or not values or (WHOLE[0] <= min(values) and max(values) <= WHOLE[1])


def _is_plain_table(value: Mapping[Any, Any], keys: Any, values: Any) -> bool:
    return _are_plainly([*value], keys) and _are_plainly([*value.values()], values)


def _is_record(origin: Any, parts: tuple[Any, ...]) -> bool:
    """tuple[str, int], and not tuple[str, ...]."""
    return origin is tuple and Ellipsis not in parts


def _is_path(value: Any) -> bool:
    return isinstance(value, PathLike) and isinstance(fspath(value), str)
