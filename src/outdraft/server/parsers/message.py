"""One answer as clients get it: what was thought, what is said, what is called; in pieces, or whole.

Marks that a tokenizer keeps as special tokens are put back into the text where they were written:

    tokens   [TOOL_CALLS]  [{"name"  ...          special tokens are no part of an answer's text,
    text                   [{"name"  ...          and the readers need these few
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import groupby

from outdraft.codecs.text import TextCodec
from outdraft.server.parsers.call_reader import CallReader, Piece
from outdraft.server.parsers.json_text import WrittenCall
from outdraft.server.parsers.thinking import ThinkingReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a piece of an answer adds, or all of it."""

    reasoning: str = ""
    parts: tuple[Piece, ...] = ()  # texts and calls in their order, no two texts side by side

    @property
    def content(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def calls(self) -> tuple[WrittenCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, WrittenCall))


class MessageReader:
    """Reads one answer. Without `thinking` and `calls` all of it is content."""

    def __init__(
        self,
        codec: TextCodec,
        *,
        marks: dict[int, str],
        thinking: ThinkingReader | None = None,
        calls: CallReader | None = None,
        many: bool = True,
    ) -> None:
        """`marks`: special tokens that the readers need, id to text. `many`: several calls, else the first alone."""
        self._marked = MarkedText(codec, marks)
        self._thinking, self._calls = thinking, calls
        self._many = many
        self.num_calls = 0  # that were handed out

    def push(self, text: str, token_ids: Seq[int], *, final: bool) -> Said:
        """A piece, and the tokens that came with it. `final`: it is the last one."""
        text = self._marked.push(text, token_ids)
        reasoning = ""
        if self._thinking is not None:
            reasoning, text = self._thinking.push(text)
            if final:
                more, rest = self._thinking.finish()
                reasoning, text = reasoning + more, text + rest
        pieces: list[Piece] = [text]
        if self._calls is not None:
            pieces = [*self._calls.push(text), *(self._calls.finish() if final else ())]
        return Said(reasoning=reasoning, parts=tuple(_joined(self._wanted(pieces))))

    def whole(self, text: str, token_ids: Seq[int]) -> Said:
        return self.push(text, token_ids, final=True)

    def _wanted(self, pieces: Iterable[Piece]) -> Iterable[Piece]:
        for piece in pieces:
            if isinstance(piece, str):
                yield piece
            elif self._many or not self.num_calls:
                self.num_calls += 1
                yield piece


def _joined(pieces: Iterable[Piece]) -> Iterable[Piece]:
    """Without empty texts, and texts side by side as one."""
    for _, run in groupby(pieces, key=type):
        first, *others = run
        if not isinstance(first, str):
            yield from (first, *others)
        elif text := "".join(map(str, (first, *others))):
            yield text


class Thoughts:
    """Says of each token of an answer whether it is a part of a thought, the marks among them.

    `thinking`: a reader that has read nothing; None: nothing is a thought.
    """

    def __init__(self, codec: TextCodec, marks: dict[int, str], thinking: ThinkingReader | None) -> None:
        self._stream, self._marks, self._thinking = codec.stream(), marks, thinking
        self._num_unsure = 0  # tokens at the beginning that may be that of a mark

    def push(self, token: int) -> list[bool]:
        """What is known after this token, the next one: of each that was not known before, whether it is."""
        if self._thinking is None:
            return [False]
        was = self._thinking.is_thinking
        self._thinking.push(self._marks.get(token) or self._stream.push(token))
        self._num_unsure += 1
        return [] if self._thinking.is_unsure else self._known(was or self._thinking.is_thinking)

    def finish(self) -> list[bool]:
        """Likewise of the rest, which was the beginning of no mark."""
        return self._known(False)

    def _known(self, thought: bool) -> list[bool]:
        known, self._num_unsure = [thought] * self._num_unsure, 0
        return known


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
