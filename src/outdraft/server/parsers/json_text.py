"""JSON in the middle of a text: where it ends, and the calls that it holds."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from outdraft.options.json_value import read_json

_ARGUMENTS = ("arguments", "parameters", "args")
_LABELS = {"name", "id", "type"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A function that the model calls. `arguments` is valid JSON, an object."""

    id: str
    name: str
    arguments: str


class Balance:
    """Given a JSON value character by character, it says where the value ends."""

    def __init__(self) -> None:
        self._depth = 0
        self._escaped = False
        self.in_string = False

    def push(self, character: str) -> bool:
        """Whether this bracket closes the value."""
        if self.in_string:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == '"':
                self.in_string = False
        elif character == '"':
            self.in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False


def call_of(value: Any) -> WrittenCall | None:
    """{"name": ..., "arguments": {...}} as a call. None if it is none.

    Models write the arguments under other keys than the one that they were taught, and as JSON within a text. A table
    without them is a call only where nothing else in it may hold them.
    """
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name.isprintable():
        return None
    keys = [key for key in _ARGUMENTS if key in value]
    if len(keys) > 1 or (not keys and set(value) - _LABELS):
        return None
    given = value[keys[0]] if keys else {}
    if isinstance(given, str):
        given = read_json(given)
    return None if not name or not isinstance(given, dict) else made(name, given)


def made(name: str, arguments: dict[str, Any]) -> WrittenCall | None:
    """A call with an id of its own; None for numbers beyond those of JSON."""
    try:
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        if any("\ud800" <= character <= "\udfff" for character in written):  # half a character stays an escape
            written = json.dumps(arguments, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return WrittenCall(id=f"call_{uuid4().hex[:24]}", name=name, arguments=written)
