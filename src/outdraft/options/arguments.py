"""Arguments of the public interface, checked against the function's own type hints before it runs."""

from collections.abc import Callable
from functools import cache, wraps
from inspect import signature
from typing import Any, Never, ParamSpec, TypeVar

from outdraft.options.checked import check_value, hints_of

P = ParamSpec("P")
T = TypeVar("T")


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
def _signature(function: Callable[..., Any]) -> Any:
    return signature(function)
