"""What grows: values of a given size, in the ways in which a field may be large.

length       characters of a text, or bytes of what it means
count        entries of a list or a table
nesting      levels
repetitions  times that a short pattern says to repeat: the text stays small
value        a number
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

HUGE = 1 << 23  # characters; a body may have half as many
_WORDS = "the old house stood by the river and she opened a small window when the letter came "


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way for a field to grow. `make`: of a size, the value.

    `beside`: what must stand in the same table, `around` in the body; `texts`: how many texts the request of a size
    writes, with which a harmless load of as many is compared.
    """

    how: str
    make: Callable[[int], Any]
    first: int = 1
    most: int = HUGE
    beside: Mapping[str, Any] = field(default_factory=dict)
    around: Mapping[str, Any] = field(default_factory=dict)
    texts: Callable[[int], int] = lambda size: 1
    is_whole: bool = False  # the value is the table's settings, not one field of it

    def sizes(self) -> list[int]:
        """Doubled from the first to the most."""
        found = [self.first]
        while found[-1] * 2 <= self.most:
            found.append(found[-1] * 2)
        return found


def words(size: int) -> str:
    """A text that a tokenizer reads as one."""
    return (_WORDS * (size // len(_WORDS) + 1))[:size]


def letters(size: int) -> str:
    """A text without a seam."""
    return "x" * size


def ids(size: int) -> list[int]:
    """Token ids, most of them different."""
    return [5 + i * 7 % 4000 for i in range(size)]


def texts(size: int) -> list[str]:
    """Short texts, all different."""
    return [f"w{i}" for i in range(size)]


def table(size: int) -> dict[str, Any]:
    """A table of so many keys."""
    return {f"k{i}": "v" for i in range(size)}


def nested(size: int) -> dict[str, Any]:
    """A table in a table, so many levels."""
    made: dict[str, Any] = {}
    for _ in range(size):
        made = {"a": made}
    return made


def schema_of(size: int) -> dict[str, Any]:
    """A schema of so many properties."""
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(size)}}


def deep_schema(size: int) -> dict[str, Any]:
    """A schema of so many levels."""
    made: dict[str, Any] = {"type": "string"}
    for _ in range(size):
        made = {"type": "object", "properties": {"a": made}, "required": ["a"], "additionalProperties": False}
    return made


def enum_schema(size: int) -> dict[str, Any]:
    """A schema of so many values."""
    return {"enum": texts(size)}


def long_schema(size: int) -> dict[str, Any]:
    """A small schema that counts far: a text of at least so many characters."""
    return {"type": "string", "minLength": size}


def many_schema(size: int) -> dict[str, Any]:
    """A small schema that counts far: an array of at least so many numbers."""
    return {"type": "array", "items": {"type": "integer"}, "minItems": size}


def pattern_schema(size: int) -> dict[str, Any]:
    """A small schema with a pattern that counts far."""
    return {"type": "string", "pattern": f"^x{{{size}}}$"}


def exponent(size: int) -> int:
    """2 to the power: numbers that no machine word holds."""
    return 1 << size


def power(size: int) -> float:
    """2 to the power, as a number with a point; larger ones JSON does not have."""
    return 2.0 ** min(size, 1023)


LENGTH = Way(how="length", make=words, first=64)
NAME = Way(how="length", make=letters, first=8)
IDS = Way(how="count", make=ids, first=4, most=1 << 20)
TEXTS = Way(how="count", make=texts, first=4, most=1 << 20)
COUNT = Way(how="value", make=int, most=1 << 14)
EXPONENT = Way(how="value, a power of 2", make=exponent, most=1 << 12)
SHARE = Way(how="value", make=lambda size: size / 1000, most=1 << 12)
POWER = Way(how="value, a power of 2", make=power, most=1 << 10)
KEYS = Way(how="count", make=table, first=4, most=1 << 19)
LEVELS = Way(how="nesting", make=nested, first=4, most=1 << 12)
