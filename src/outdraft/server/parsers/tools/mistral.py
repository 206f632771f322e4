"""Mistral: [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]; newer models write [TOOL_CALLS]f[ARGS]{...}.

The marks are special tokens. Where a call is enforced the first one stands behind the prompt, and the list follows.
Chat templates of the family want ids of nine letters and digits.
"""

import hashlib
import json
import re
from collections.abc import Sequence as Seq

from outdraft.options.json_value import read_json
from outdraft.server.parsers.call_reader import CallReader, Piece
from outdraft.server.parsers.json_text import WrittenCall, call_of, made
from outdraft.server.parsers.tool_format import FunctionAsked, ToolFormat, call_rules, further, literal

_MARK, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAMED = re.compile(r"\s*([\w.-]{1,64})\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\])?\s*")
_LONGEST_HEAD = 160  # characters of a name and an id


class MistralReader(CallReader):
    """Behind the mark stands a list of calls, or a name and its arguments."""

    mark = _MARK

    def __init__(self, names: frozenset[str], *, opened: bool = False) -> None:
        super().__init__(names, opened=opened)
        self._head: str | None = None  # what stands before the bracket, once one has come

    def _body(self, *, final: bool) -> list[Piece] | None:
        if self._head is None and not self._begin():
            size = min(len(self._held), _LONGEST_HEAD)
            return self._leave(size) if final or size == _LONGEST_HEAD else None
        end = self._value_end(final=final)
        return None if end is None else self._leave(end)

    def _begin(self) -> bool:
        """Find the bracket that opens the list, or the arguments."""
        bare = self._held.lstrip()
        at = self._held.find("[" if bare.startswith("[") else "{", 0, _LONGEST_HEAD)
        if at < 0:
            return False
        self._head, self._seen = self._held[:at], at
        return True

    def _leave(self, end: int) -> list[Piece]:
        head, body, self._head = self._head, self._take(end), None
        calls = [] if head is None else _calls(head, body[len(head) :])
        return [*calls] or [body]


def _calls(head: str, body: str) -> list[WrittenCall]:
    """All of a list, or none."""
    value = read_json(body)
    if (named := _NAMED.fullmatch(head)) is not None:
        found = [made(named[1], value) if isinstance(value, dict) else None]
    else:
        found = [call_of(one) for one in (value if isinstance(value, list) else [value])]
    calls = [one for one in found if one is not None]
    return calls if len(calls) == len(found) and not (head.strip() and named is None) else []


class Mistral(ToolFormat):
    """See the top of the file."""

    name = "mistral"
    marks = (_MARK, _ID, _ARGUMENTS)
    opening = _MARK
    reads = MistralReader

    def fits(self, template: str) -> bool:
        return _MARK in template

    def calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str:
        rules = call_rules(functions, lambda name: (f'{{"name": {json.dumps(name)}, "arguments": ', "}"))
        return f"calls: {literal('[')} call {further('call', ', ', many=many)} {literal(']')}\n{rules}"

    def call_id(self, given: str) -> str:
        fine = len(given) == 9 and given.isascii() and given.isalnum()
        return given if fine else hashlib.sha256(given.encode("utf-8", "replace")).hexdigest()[:9]
