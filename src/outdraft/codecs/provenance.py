"""Which control tokens of a rendered conversation the chat template wrote, whatever it does with what it is given.

Templates trim, cut, compare and join the texts of messages, so that neither the texts before rendering nor the text
after it show who wrote what. So stand-ins, characters that occur nowhere, replace symbols of the tokens' names (`|` of
<|im_end|>) in everything that a caller gave:

    loosely     in whole names alone; no other text differs from what the caller gave
    strictly    wherever a symbol stands, and in texts that are a word of a name; no piece of them becomes a part of one
    barely      wherever one of those few symbols stands of which every name has at least one

Where the loose text and a stricter one are the same but for the stand-ins, it is known who wrote each of its names. A
template that looks at such symbols itself, as for </think>, may write another text strictly; then the bare one is
compared, and where that differs too, the loose one holds if its control tokens are the same.
"""

import re
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import Any

from outdraft.codecs.control_tokens import ControlTokens, Span
from outdraft.options.errors import RequestError

_FIRST, _LAST = 0xE100, 0xF8FF  # private characters
_ESCAPES = re.compile(r"\\u([ef][0-9a-f]{3})")


class MarkedValues:
    """What a caller gave for one rendering. `sources`: the template's own texts."""

    def __init__(self, control: ControlTokens, given: Mapping[str, Any], sources: str) -> None:
        self._control, self._given = control, given
        held = [sources]
        _each_text(given, held.append)
        needed = dict.fromkeys([*control.symbols, *(word[0] for word in control.words)])
        self._stand_ins = _unused([*needed], "\n".join(held))

    def write(self, render: Callable[[Mapping[str, Any]], str]) -> tuple[str, tuple[Span, ...]]:
        """The text, and where control tokens of the template stand in it. Raises `RequestError` as `render` does, and
        for a conversation of which a template would make other control tokens."""
        given = self._changed(self._loosely)
        loose = self._rendered(render, given)
        text, bare = self.undone(loose), None
        for change in (self._strictly, self._barely):
            if (changed := self._changed(change)) == given:
                return text, self._control.spans(loose)
            try:
                bare = self._rendered(render, changed)
            except RequestError:
                continue
            if self.undone(bare) == text:
                return text, self._control.spans(bare)
        if bare is None or self._names(bare) != self._names(loose):
            raise RequestError(
                "the chat template makes control tokens out of pieces of these messages: take the names of such "
                "tokens, whole or in pieces, out of them, or set special_tokens_in_messages where that is allowed"
            )
        return text, self._control.spans(loose)

    def undone(self, text: str) -> str:
        """With the characters themselves."""
        for old, new in self._stand_ins.items():
            text = text.replace(new, old)
            if not old.isascii():
                text = text.replace(_escape(new), _escape(old))
        return text

    def _names(self, text: str) -> list[str]:
        return [text[begin:end] for begin, end in self._control.spans(text)]

    def _changed(self, change: Callable[[str, bool], str]) -> Mapping[str, Any]:
        return {name: _each_changed(value, change, is_role=False) for name, value in self._given.items()}

    def _rendered(self, render: Callable[[Mapping[str, Any]], str], given: Mapping[str, Any]) -> str:
        try:
            text = render(given)
        except RequestError as error:
            raise RequestError(self.undone(self._unescaped(str(error)))) from error
        return self._unescaped(text)

    def _unescaped(self, text: str) -> str:
        """JSON and Python escape a stand-in even where they would not escape what it stands for."""
        for old, new in self._stand_ins.items():
            if old.isascii():
                text = text.replace(_escape(new), new)
        return text

    def _loosely(self, text: str, _: bool) -> str:
        if not self._has_symbols(text):
            return text
        pieces, at = [], 0
        for begin, end in self._control.spans(text):
            pieces += [text[at:begin], self._replaced(text[begin:end], self._control.symbols)]
            at = end
        return "".join([*pieces, text[at:]])

    def _strictly(self, text: str, is_role: bool) -> str:
        if (word := text.strip()) in self._control.words and not is_role:
            return text.replace(word[0], self._stand_ins[word[0]], 1)
        return self._replaced(text, self._control.symbols)

    def _barely(self, text: str, _: bool) -> str:
        return self._replaced(self._loosely(text, False), self._control.few)

    def _has_symbols(self, text: str) -> bool:
        return any(symbol in text for symbol in self._control.few)

    def _replaced(self, text: str, symbols: str) -> str:
        for symbol in symbols:
            text = text.replace(symbol, self._stand_ins[symbol])
        return text


def _each_changed(value: Any, change: Callable[[str, bool], str], *, is_role: bool) -> Any:
    """All texts of tables and lists, keys too."""
    if isinstance(value, str):
        return change(value, is_role)
    if isinstance(value, Mapping):
        return {
            _each_changed(key, change, is_role=True): _each_changed(one, change, is_role=key == "role")
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_each_changed(one, change, is_role=False) for one in value]
    return value


def _each_text(value: Any, tell: Callable[[str], Any]) -> None:
    if isinstance(value, str):
        tell(value)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            _each_text(key, tell)
            _each_text(one, tell)
    elif isinstance(value, list | tuple):
        for one in value:
            _each_text(one, tell)


def _unused(needed: Seq[str], text: str) -> dict[str, str]:
    """A private character for each of these that stands in no text, nor its escape."""
    held = {*text, *(chr(int(code, 16)) for code in _ESCAPES.findall(text))}
    free = (one for one in map(chr, range(_FIRST, _LAST + 1)) if one not in held)
    found = dict(zip(needed, free, strict=False))
    if len(found) < len(needed):
        raise RequestError("the messages hold every character of Unicode's private area: leave these out")
    return found


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}"
