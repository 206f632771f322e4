"""Letters of a JSON schema's longest text, with its repetitions and references multiplied out, where they have an end.

    {"items": {"maxLength": 20}, "maxItems": 3}        3 * (20 + 2)

What has no end counts once, or as often as it must come; alternatives count all together, as all are compiled. A
schema that refers to itself counts once there.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from outdraft.codecs.grammar.counting import MOST, TooDeep
from outdraft.codecs.grammar.counting.regex import count_regex

MOST_REFERENCES = 64  # that lead from one to the next
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_MORE = ("additionalProperties", "additionalItems", "propertyNames")


def count_schema(schema: Any) -> int:
    """At least 1, and linear in the schema's size, which is known to be of few levels. Raises `TooDeep`."""
    known: dict[str, int] = {}
    following: list[str] = []  # references, each in what the one before stands for

    def of_reference(reference: str) -> int:
        if reference not in known:
            known[reference] = 1  # where it stands in itself
            following.append(reference)
            if len(following) > MOST_REFERENCES:
                raise TooDeep
            known[reference] = of(_resolved(schema, reference))
            following.pop()
        return known[reference]

    def of(one: Any) -> int:
        if not isinstance(one, Mapping):
            return 1
        count = max(2, _number(one, "minLength"), _number(one, "maxLength"))
        if isinstance(pattern := one.get("pattern"), str):
            count += count_regex(pattern)
        for name in ("enum", "const"):
            count += len(str(one[name])) if name in one else 0
        if isinstance(reference := one.get("$ref"), str):
            count += of_reference(reference)
        for name in _LISTED:
            count += sum(map(of, one[name])) if isinstance(one.get(name), list) else 0
        items = one.get("items")
        count += sum(map(of, items)) if isinstance(items, list) else 0
        times = max(_number(one, "minItems"), _number(one, "maxItems"))
        count += of(items) * max(1, times) if times or "items" in one else 0
        named, patterns = one.get("properties"), one.get("patternProperties")
        if isinstance(named, Mapping):
            count += sum(len(name) + of(value) for name, value in named.items())
        more = sum(of(one[name]) for name in _MORE if name in one)
        if isinstance(patterns, Mapping):
            more += sum(count_regex(name) + of(value) for name, value in patterns.items())
        return min(MOST, count + more * max(1, _number(one, "minProperties"), _number(one, "maxProperties")))

    try:
        return of(schema)
    except RecursionError as error:
        raise TooDeep from error


def _number(schema: Mapping[str, Any], name: str) -> int:
    value = schema.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return 0
    return int(min(max(value, 0), MOST))


def _resolved(schema: Any, reference: str) -> Any:
    """What a reference within the schema stands for; None where it leads nowhere, which the library refuses."""
    if not reference.startswith("#"):
        return None
    for part in reference[1:].split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, Mapping):
            schema = schema.get(name)
        elif isinstance(schema, list) and name.isdigit() and int(name[:9]) < len(schema):
            schema = schema[int(name[:9])]
        else:
            return None
    return schema
