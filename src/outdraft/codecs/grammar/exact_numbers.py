"""Numbers of a schema that the library would round, as it reads each as a float.

    {"const": 9007199254740993}    would be written as 9007199254740992

Data in: a schema; data out: nothing, or one `RequestError` that names the keyword and the number.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from decimal import Decimal
from math import inf
from typing import Any

from outdraft.options.errors import RequestError
from outdraft.options.shown import shown

_EXACT = 2**53  # up to which a float holds every whole number
_END = 2**63  # of whole numbers: the library writes the one before it for all from here on
# From a number to the first whole one that it allows, which is reckoned as a float too.
_STEPS = {"exclusiveMinimum": 1, "exclusiveMaximum": -1} | dict.fromkeys(
    ("const", "enum", "minimum", "maximum", "multipleOf"), 0
)
_VALUES = ("const", "enum", "default", "examples")  # hold values, and no schemas
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # hold schemas by names that are no keywords


def check_numbers(part: Any, keyword: str = "", types: Seq[Any] = ()) -> None:
    """Raise `RequestError` for a number that is not kept; the schema is known to be of few levels.

    `part`: the schema, or what stands in it below `keyword`, in a table of these `types` (none: of any).
    """
    if isinstance(part, Mapping):
        named = part.get("type", ())
        for name, one in part.items():
            below = keyword if keyword in _VALUES else "" if keyword in _NAMED else name
            check_numbers(one, below, named if isinstance(named, list | tuple) else [named])
    elif isinstance(part, list | tuple):
        for one in part:
            check_numbers(one, keyword, types)
    elif keyword in _STEPS and isinstance(part, int | float) and not _is_exact(keyword, part, types):
        raise RequestError(
            f"json of structured_outputs has {keyword}={shown(part)}, a number too large to be kept exactly: make an "
            "id a string, or take a number of at most 15 digits"
        )


def _is_exact(keyword: str, number: float, types: Seq[Any]) -> bool:
    first = number + _STEPS[keyword]
    if not _EXACT < max(abs(number), abs(first)) < inf:
        return True
    is_value = keyword in _VALUES
    is_whole = "integer" in types or (isinstance(number, int) if is_value else not types)
    if is_whole and first >= _END and keyword in ("maximum", "exclusiveMaximum"):
        return True  # all that is written is below it
    if is_whole and (abs(first) >= _END or min(int(float(number) + _STEPS[keyword]), _END - 1) != first):
        return False
    if is_value or isinstance(number, float) or (types and "number" not in types):
        return True
    # Of other bounds the library compares digits: now those of the float, now the shortest that mean it.
    return abs(number) < _END and Decimal(repr(float(number))) == number == float(number)
