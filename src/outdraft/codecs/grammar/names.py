"""What a schema says of an object's names, where the library writes none that keep to it, or the text gets stuck.

The library writes the fields of `properties` in their order, and then names that patterns or `additionalProperties`
allow, of which it does not know whether they have been written.
"""

import re
from collections.abc import Mapping
from typing import Any

from outdraft.options.errors import RequestError
from outdraft.options.shown import shown

MOST_OPTIONAL = 250  # fields of one object: compiling takes time quadratic in their number
_LETTERS = re.compile(r"\^[^*+?{}.\[\]\\^$]{1,64}\$")  # a pattern of finitely many names, matched in no time


def check_names(schema: Mapping[str, Any]) -> None:
    """Raise `RequestError`, with the keyword and its value, for one table of a schema."""
    named = schema.get("properties")
    named = set(named) if isinstance(named, Mapping) else set()
    required = schema.get("required")
    required = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    if (optional := len(named - required)) > MOST_OPTIONAL:
        raise _refusal(
            f"has an object with {optional} optional fields: {MOST_OPTIONAL} are the most; make those required that "
            "always come"
        )
    least, most = (_number(schema.get(name)) for name in ("minProperties", "maxProperties"))
    if most is not None and most < max(len(required), least or 0):
        raise _refusal(
            f"has maxProperties={most:g}, less than minProperties={least or 0:g} or the {len(required)} required fields"
        )
    if (least is not None and least > len(required | named) + 1) or ((least or 0) > len(required) + 1 and not named):
        raise _refusal(
            f"has minProperties={least:g}, with {len(required)} required fields: names that a pattern gives may be "
            "written twice; name these fields, and require them"
        )
    if schema.get("additionalProperties") is False:
        _check_patterns(schema.get("patternProperties"), named | required)


def _check_patterns(patterns: Any, named: set[str]) -> None:
    """Where all names that a pattern gives are fields by name already, nothing could follow a comma."""
    if not isinstance(patterns, Mapping) or not patterns:
        return
    for pattern in patterns:
        if not (_LETTERS.fullmatch(pattern) and any(re.search(pattern, name) for name in named)):
            return
    raise _refusal(
        f"has patternProperties {shown(next(iter(patterns)))} beside a field of this name: say in properties what it "
        "is, and leave the pattern out"
    )


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _refusal(told: str) -> RequestError:
    return RequestError(f"json of structured_outputs {told}")
