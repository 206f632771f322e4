"""One answer as clients get it: what was thought, what is said, what is called; in pieces, or whole."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.codecs.text import TextCodec
from outdraft.server.parsers.call_reader import CallReader, Piece
from outdraft.server.parsers.json_text import Call
from outdraft.server.parsers.marked_tokens import MarkedText
from outdraft.server.parsers.thinking import ThinkingReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a piece of an answer adds, or all of it."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.reasoning or self.content or self.calls)


class MessageReader:
    """Reads one answer. Without `thinking` and `calls` all of it is content."""

    def __init__(
        self, codec: TextCodec, *, marks: dict[int, str], thinking: ThinkingReader | None = None,
        calls: CallReader | None = None, many: bool = True,
    ) -> None:  # fmt: skip
        """`marks`: special tokens that the readers need, id to text. `many`: several calls, else the first alone."""
        self._marked = MarkedText(codec, marks)
        self._thinking, self._calls = thinking, calls
        self._many = many
        self._num_calls = 0

    def push(self, text: str, token_ids: Seq[int], *, final: bool) -> Said:
        """A piece, and the tokens that came with it. `final`: it is the last one."""
        text = self._marked.push(text, token_ids)
        reasoning = ""
        if self._thinking is not None:
            reasoning, text = self._thinking.push(text)
            if final:
                more, rest = self._thinking.finish()
                reasoning, text = reasoning + more, text + rest
        if self._calls is None:
            return Said(reasoning=reasoning, content=text)
        pieces = [*self._calls.push(text), *(self._calls.finish() if final else ())]
        content = "".join(piece for piece in pieces if isinstance(piece, str))
        return Said(reasoning=reasoning, content=content, calls=tuple(self._wanted(pieces)))

    def whole(self, text: str, token_ids: Seq[int]) -> Said:
        """All of an answer at once."""
        return self.push(text, token_ids, final=True)

    def _wanted(self, pieces: Iterable[Piece]) -> Iterable[Call]:
        for piece in pieces:
            if isinstance(piece, Call) and (self._many or not self._num_calls):
                self._num_calls += 1
                yield piece


def count_reasoning(codec: TextCodec, marks: dict[int, str], thinking: ThinkingReader, token_ids: Seq[int]) -> int:
    """How many of these tokens are a thought, its marks among them. `thinking`: a reader that has read nothing."""
    stream, count = codec.stream(), 0
    for token in token_ids:
        was = thinking.is_thinking
        thinking.push(marks.get(token) or stream.push(token))
        count += was or thinking.is_thinking
    return count
