"""One check for options that are numbers, and one wording of what is wrong: the option, its value, what it must be."""

from math import inf

from outdraft.options.errors import ConfigError
from outdraft.options.shown import shown

LARGEST = 2**31 - 1  # a whole number that every kernel and container can take
MOST_BYTES = 2**50  # of memory or of a disk, and of tokens to learn from
MOST_NODES = 4096  # draft tokens of one guess
MOST_NGRAM = 64  # tokens of an n-gram that is looked up: the work for each token grows with its square


def check_range(options: object, *names: str, least: float = -inf, most: float = inf, note: str = "") -> None:
    """Raise `ConfigError` unless least <= value <= most for each named field. `note`: what a limit means.

    Of a tuple or list each number is checked. A field that is None was left to another part; NaN is in no range, and a
    whole number above `LARGEST` only in one whose `most` is above it.
    """
    for name in names:
        field = getattr(options, name)
        for value in field if isinstance(field, tuple | list) else (field,):
            check_number(name, value, least=least, most=most, note=note)


def check_number(name: str, value: float | None, *, least: float = -inf, most: float = inf, note: str = "") -> None:
    """The same of one value."""
    top = LARGEST if isinstance(value, int) and most == inf else most
    if value is not None and not least <= value <= top:
        open_above = most == inf and not (isinstance(value, int) and value > top)
        limit = f"at least {least:g}" if open_above else f"between {least:g} and {top:.10g}"
        raise ConfigError(f"{name}={shown(value)}: must be {limit}{note and f' ({note})'}")
