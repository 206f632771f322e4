"""Marks that a tokenizer keeps as special tokens, put back into the text where they were written.

tokens   [TOOL_CALLS]  [{"name"  ...          special tokens are no part of an answer's text,
text                   [{"name"  ...          and the readers of `parsers` need these few
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from outdraft.codecs.text import TextCodec


def special_marks(codec: TextCodec, marks: Iterable[str]) -> dict[int, str]:
    """The ids of those marks that are special tokens, and their texts."""
    wanted = set(marks)
    named = ((i, codec.token_text(i)) for i in codec.special_ids)
    return {i: name for i, name in named if name in wanted}


class MarkedText:
    """The pieces of one answer with the marks in them."""

    def __init__(self, codec: TextCodec, marks: dict[int, str]) -> None:
        """`marks`: id to text."""
        self._marks = marks
        self._stream = codec.stream()
        self._length = self._shown = 0  # characters of the text that the tokens make, and that was handed out
        self._waiting: list[tuple[int, str]] = []  # marks whose place in the text has not been handed out

    def push(self, text: str, token_ids: Seq[int]) -> str:
        """`text`: what was handed out together with these tokens; it may lag behind them."""
        if not self._marks:
            return text
        for token in token_ids:
            if token in self._marks:
                self._waiting.append((self._length, self._marks[token]))
            else:
                self._length += len(self._stream.push(token))
        return "".join(self._with_marks(text))

    def _with_marks(self, text: str) -> Iterable[str]:
        """A mark is due when the text in front of it is handed out, which a stop string may prevent for ever."""
        begin = at = self._shown
        self._shown += len(text)
        while self._waiting and self._waiting[0][0] <= self._shown:
            place, mark = self._waiting.pop(0)
            yield text[at - begin : place - begin] + mark
            at = place
        yield text[at - begin :]
