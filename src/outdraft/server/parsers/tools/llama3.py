"""Llama 3.1 to 3.3: {"name": "f", "parameters": {...}}, several parted by semicolons, perhaps behind <|python_tag|>.

An answer that is JSON and names none of the functions is text.
"""

import json
import re
from collections.abc import Sequence as Seq

from outdraft.options.json_value import read_json
from outdraft.server.parsers.call_reader import CallReader, Piece, begun
from outdraft.server.parsers.json_text import call_of
from outdraft.server.parsers.tool_format import FunctionAsked, ToolFormat, call_rules, further

_TAG = "<|python_tag|>"
_BETWEEN = " \t\r\n;"
_SHOWN = re.compile(r"""\{\\*["']name\\*["']:[^{}]{0,80}["']parameters\\*["']:""")  # how a template teaches the form


class LlamaReader(CallReader):
    """Without a tag a call stands at the beginning, or behind another call."""

    mark = _TAG

    def _begins_bare(self) -> bool:
        rest = self._held.lstrip(_BETWEEN if self._num_calls else None)
        if not self._fresh or not rest.startswith("{"):
            return False
        self._held = rest
        return True

    def _certain(self) -> int:
        """What parts two calls is no text before it is known what follows."""
        plain = self._held[: len(self._held) - begun(self._held, self.mark)]
        return 0 if self._fresh and not plain.strip(_BETWEEN) else super()._certain()

    def _text(self, *, final: bool) -> tuple[str, bool]:
        text, begins = super()._text(final=final)
        parts = self._num_calls and self._fresh and (begins or final) and not text.strip(_BETWEEN)
        return ("" if parts else text), begins

    def _body(self, *, final: bool) -> list[Piece] | None:
        if not self._seen:
            self._held = self._held.lstrip()
            if self._held and not self._held.startswith("{"):  # what stands behind a tag may be a program
                return []
        end = self._value_end(final=final)
        return None if end is None else self._leave(end)

    def _leave(self, end: int) -> list[Piece]:
        body = self._take(end)
        call = call_of(read_json(body))
        return [body if call is None or call.name not in self._names else call] if body else []


class Llama3(ToolFormat):
    """See the top of the file."""

    name = "llama3"
    marks = (_TAG,)
    reads = LlamaReader

    def fits(self, template: str) -> bool:
        family = _TAG in template or "ipython" in template
        return family and _SHOWN.search(template) is not None and "<function" not in template

    def calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str:
        return f"calls: call {further('call', '; ', many=many)}\n{_rules(functions)}"

    def perhaps_calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str:
        calls = f"NO_CALL | call {further('call', '; ', many=many)}"
        return f"calls: {calls}\nNO_CALL: /[^{{\\s](?s:.*)/\n{_rules(functions)}"


def _rules(functions: Seq[FunctionAsked]) -> str:
    return call_rules(functions, lambda name: (f'{{"name": {json.dumps(name)}, "parameters": ', "}"))
