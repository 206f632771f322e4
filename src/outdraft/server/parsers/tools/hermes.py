r"""Hermes, Qwen 2.5 and Qwen 3: <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>, one or several."""

import json
import re
from collections.abc import Sequence as Seq

from outdraft.options.json_value import read_json
from outdraft.server.parsers.call_reader import CallReader, Piece
from outdraft.server.parsers.json_text import call_of
from outdraft.server.parsers.tool_format import FunctionAsked, ToolFormat, call_rules, further, literal

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_SHOWN = re.compile(r"""<tool_call>(?:\\n|\s)*\{+\\*["'](?:name|arguments)\\*["']""")  # how a template teaches the form


class HermesReader(CallReader):
    """A call ends at the first closing mark outside of its strings; at the end of the answer it may lack the mark."""

    mark = _OPEN

    def _body(self, *, final: bool) -> list[Piece] | None:
        while (at := self._held.find(_CLOSE, self._seen)) >= 0:
            body = self._held[:at]
            call = call_of(read_json(body))
            self._tell(at)
            if call is not None or not self._balance.in_string:
                return self._leave(body, _CLOSE, call)
            self._tell(at + len(_CLOSE))
        if not final:
            self._tell(max(self._seen, len(self._held) - len(_CLOSE)))
            return None
        return self._leave(self._held, "", call_of(read_json(self._held)))

    def _tell(self, end: int) -> None:
        for character in self._held[self._seen : end]:
            self._balance.push(character)
        self._seen = end

    def _leave(self, body: str, close: str, call: Piece | None) -> list[Piece]:
        self._take(len(body) + len(close))
        return [body if call is None else call]


class Hermes(ToolFormat):
    """See the top of the file."""

    name = "hermes"
    marks = (_OPEN, _CLOSE)
    reads = HermesReader

    def fits(self, template: str) -> bool:
        return _SHOWN.search(template) is not None and "<function=" not in template

    def calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str:
        return f"calls: {literal(_OPEN)} body {_further(many)}\n{_bodies(functions)}"

    def perhaps_calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str:
        return (
            f"calls: NO_CALL | before body {_further(many)}\n"
            f"before[suffix={literal(_OPEN)}]: /(?s:.*)/\n"
            f"NO_CALL: /(?s:.+)/ & ~/(?s:.*){_OPEN}(?s:.*)/\n{_bodies(functions)}"
        )


def _further(many: bool) -> str:
    return further(f"{literal(_OPEN)} body", "\n", many=many)


def _bodies(functions: Seq[FunctionAsked]) -> str:
    """`body`: what follows the opening mark."""
    rules = call_rules(functions, lambda name: (f'\n{{"name": {json.dumps(name)}, "arguments": ', f"}}\n{_CLOSE}"))
    return f"body: call\n{rules}"
