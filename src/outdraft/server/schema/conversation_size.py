"""How much a conversation may hold, counted before any of it is read.

A body of some megabytes can hold hundreds of thousands of messages, parts, calls or tools, and each costs more than its
bytes: it is checked, shown to the template and perhaps compiled.
"""

from collections.abc import Callable
from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from outdraft.options import limits
from outdraft.server.schema.base import too_long


def _count(given: Any) -> Any:
    if not isinstance(given, list):
        return given
    within = (part for one in given if isinstance(one, dict) for part in one.values() if isinstance(part, list))
    if (count := len(given) + sum(map(len, within))) > limits.MOST_PARTS:
        raise too_long(f"with its parts and calls it has {count}", limits.MOST_PARTS, "send a shorter conversation")
    return given


def _limit(most: int, most_bytes: int) -> Callable[[Any], Any]:
    """A check of a list or table: of its entries, its levels, and its bytes as JSON."""

    def check(given: Any) -> Any:
        if not isinstance(given, list | dict):
            return given
        if len(given) > most:
            raise too_long(f"it has {len(given)} entries", most, "send fewer")
        if _levels(given) > limits.DEEPEST:
            raise PydanticCustomError("too_deep", "it is nested deeper than {most} levels", {"most": limits.DEEPEST})
        try:
            size = len(orjson.dumps(given))
        except orjson.JSONEncodeError:  # it comes from a request that was checked
            return given
        if size > most_bytes:
            raise too_long(f"as JSON it has {size} bytes", most_bytes)
        return given

    return check


def _levels(value: Any) -> int:
    level, count = [value], 0
    while level and count <= limits.DEEPEST:
        tables = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, list | dict)]
        level, count = [one for table in tables for one in table], count + 1
    return count


Counted = BeforeValidator(_count)
FewTools = BeforeValidator(_limit(limits.MOST_TOOLS, limits.ALL_TOOLS))
Variables = Annotated[dict[str, Any], BeforeValidator(_limit(limits.MOST_VARIABLES, limits.ALL_VARIABLES))]
CallId = Annotated[str, Field(max_length=limits.LONGEST_CALL_ID)]
Template = Annotated[str, Field(max_length=limits.LONGEST_TEMPLATE)]
