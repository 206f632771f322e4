"""Takes an answer apart into text and calls while it is written.

    "Let me look.\n<tool_call>{...}</tool_call>"   ->   "Let me look."   WrittenCall(...)

Text goes on at once, except for its last characters where they may begin a mark, and blanks, which are left out next
to a call. A call goes on when it is complete and valid, so that every call that a client gets can be used; what looks
like one and is none, or was cut off, stays text, without the marks. However the answer is cut into pieces, the same
comes out.
"""

from collections.abc import Iterator

from outdraft.server.parsers.json_text import Balance, WrittenCall

Piece = str | WrittenCall


class CallReader:
    """One for an answer. A subclass says what stands behind the mark: `_body`."""

    mark = ""  # begins a call

    def __init__(self, names: frozenset[str], *, opened: bool = False) -> None:
        """`names`: of the functions that may be called. `opened`: a mark stands before the answer already."""
        self._names = names
        self._inside = opened
        self._held = ""
        self._fresh = True  # no text stands before this place, or none since the last call
        self._num_calls = 0
        self._balance, self._seen = Balance(), 0  # characters of `_held` that `_balance` was given

    def push(self, text: str) -> list[Piece]:
        """What is certain after so much more of the answer."""
        self._held += text
        return list(self._read(final=False))

    def finish(self) -> list[Piece]:
        return list(self._read(final=True))

    def _read(self, *, final: bool) -> Iterator[Piece]:
        while True:
            if self._inside:
                found = self._body(final=final)
                if found is None:
                    return
                self._inside = False
                for piece in found:
                    self._fresh = isinstance(piece, WrittenCall)
                    self._num_calls += isinstance(piece, WrittenCall)
                    yield piece
            elif self._begins_bare():
                self._inside = True
            else:
                text, self._inside = self._text(final=final)
                if text:
                    self._fresh = False
                    yield text
                if not self._inside:
                    return

    def _body(self, *, final: bool) -> list[Piece] | None:
        """Read what stands behind the mark from `_held`, and leave there what follows. None: it goes on."""
        raise NotImplementedError

    def _value_end(self, *, final: bool) -> int | None:
        """Where the JSON value ends that `_held` begins with; of a last, unfinished one the end. None: it goes on."""
        for at in range(self._seen, len(self._held)):
            if self._balance.push(self._held[at]):
                return at + 1
        self._seen = len(self._held)
        return self._seen if final else None

    def _take(self, end: int) -> str:
        """So many characters of `_held`, which are a call or none; what follows is read anew."""
        body, self._held = self._held[:end], self._held[end:]
        self._balance, self._seen = Balance(), 0
        return body

    def _begins_bare(self) -> bool:
        """Whether a call begins here without a mark."""
        return False

    def _text(self, *, final: bool) -> tuple[str, bool]:
        """Text that is certain, and whether a mark stands behind it."""
        before, mark, rest = self._held.partition(self.mark)
        if mark:
            self._held = rest
            return before.rstrip(), True
        if final:
            text, self._held = self._held, ""
            return (text.rstrip() if self._num_calls else text), False
        certain = self._certain()
        text, self._held = self._held[:certain], self._held[certain:]
        return text, False

    def _certain(self) -> int:
        """How many characters of `_held` are text, whatever follows."""
        return len(self._held[: len(self._held) - begun(self._held, self.mark)].rstrip())


def begun(text: str, mark: str) -> int:
    """How many last characters of a text may begin the mark."""
    longest = min(len(mark) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
