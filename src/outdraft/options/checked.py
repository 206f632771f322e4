"""Values that a user gave, checked against their declarations before any work: one wording for all of them.

    max_ngram='x' of drafter 'ngram' must be a whole number

Numbers of numpy and PyTorch become Python's own. `check_fields` stands in the `__post_init__` of a record,
`check_arguments` above a function of the public interface.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache, wraps
from inspect import signature
from types import NoneType, UnionType
from typing import Any, Never, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.shown import shown
from outdraft.options.types import WHOLE, fits, in_words, own_types

P = ParamSpec("P")
T = TypeVar("T")
_signature = cache(signature)


def check_value(name: str, value: Any, hint: Any, *, of: str = "", error: type[OutdraftError] = ConfigError) -> Any:
    """The value in Python's own types. Raises `error` naming it, its value and what it must be."""
    if type(value) in _as_they_are(hint) and (type(value) is not int or WHOLE[0] <= value <= WHOLE[1]):
        return value
    if not fits(value, hint):
        must = in_words(hint)
        if isinstance(value, int) and not WHOLE[0] <= value <= WHOLE[1] and fits(0, hint):
            must += ", of at most 64 bits"
        raise error(f"{name}={shown(value)}{of and f' of {of}'} must be {must}")
    return own_types(value, hint)


def check_fields(
    record: object, *, of: str = "", error: type[OutdraftError] = ConfigError, only: Iterable[str] | None = None
) -> None:
    """Check every field of a dataclass, or these, and store it in Python's own types; a list becomes a tuple."""
    declared: Any = type(record)
    hints = hints_of(declared)
    for name in (one.name for one in fields(declared)) if only is None else only:
        value = check_value(name, getattr(record, name), hints[name], of=of, error=error)
        object.__setattr__(record, name, tuple(value) if isinstance(value, list) else value)


def check_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """The function, given its arguments in Python's own types. Unknown keyword arguments are left to the function."""

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        given = _signature(function).bind(*args, **kwargs)
        hints = hints_of(function)
        for name, value in given.arguments.items():
            if hints.get(name, Never) is not Never:
                given.arguments[name] = check_value(name, value, hints[name])
        return function(*given.args, **given.kwargs)

    return checked


@cache
def _as_they_are(hint: Any) -> frozenset[type]:
    """Which of Python's own types need no further look: most values are of these."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return frozenset({bool, int, str, NoneType}.intersection(part for part in parts if isinstance(part, type)))


@cache
def hints_of(declared: Any) -> dict[str, Any]:
    """The type hints of a class or a function, read once."""
    return get_type_hints(declared)
