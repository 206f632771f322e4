"""Stop strings: where a text ends. One piece for each token goes in; each byte costs O(1), whatever was written before.

A `StopTable` is made once for all texts of a request.
"""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, final

from outdraft.codecs.codec import Codec, text_codec
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop string was written."""

    text: str  # which
    token: int  # index of the token that completed it
    offset: int  # characters of the whole text to keep: the stop string begins here


@final
class StopTable:
    """An Aho-Corasick automaton over the characters of stop strings (Aho and Corasick, "Efficient string matching",
    1975, https://doi.org/10.1145/360825.360855). A state is the longest end of the text that could begin one; 0: none.

    `depth[state]`: its characters; `found[state]`: the longest stop string that ends there.
    """

    def __init__(self, stops: Seq[str]) -> None:
        self.depth = [0]
        self.found: list[str | None] = [None]
        self._next: list[dict[str, int]] = [{}]
        for stop in stops:
            self._insert(stop)
        self._fail = [0] * len(self._next)
        self._link()

    def step(self, state: int, character: str) -> int:
        """The state behind one more character."""
        while state and character not in self._next[state]:
            state = self._fail[state]
        return self._next[state].get(character, 0)

    def _insert(self, stop: str) -> None:
        node = 0
        for character in stop:
            if character not in self._next[node]:
                self._next[node][character] = len(self._next)
                self._next.append({})
                self.depth.append(self.depth[node] + 1)
                self.found.append(None)
            node = self._next[node][character]
        if node:
            self.found[node] = stop

    def _link(self) -> None:
        """Breadth first: where to go on when the next character does not fit, and the longest stop that ends here."""
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for character, child in self._next[node].items():
                self._fail[child] = self.step(self._fail[node], character)
                queue.append(child)
            if self.found[node] is None:
                self.found[node] = self.found[self._fail[node]]


class StopStrings:
    """Finds the first stop string to be completed in one text (of several at once: the longest), wherever token borders
    fall.

    `min_tokens`: one that the first so many tokens complete does not count.
    """

    def __init__(self, table: StopTable, min_tokens: int = 0) -> None:
        self._table, self._min_tokens = table, min_tokens
        self._state = 0
        self._num_tokens = 0
        self._length = 0
        self.stop: Stop | None = None

    @property
    def held(self) -> int:
        """How many last characters of the text may turn out to be a stop string: do not show them yet."""
        return self._table.depth[self._state]

    def push(self, piece: str) -> Stop | None:
        """Read the text of one token (it may be empty). After a hit nothing more is read."""
        if self.stop is not None:
            return self.stop
        for character in piece:
            self._state = self._table.step(self._state, character)
            self._length += 1
            found = self._table.found[self._state]
            if found is not None and self._num_tokens >= self._min_tokens:
                self.stop = Stop(found, self._num_tokens, self._length - len(found))
                return self.stop
        self._num_tokens += 1
        return None


def find_stops(table: StopTable, params: SamplingParams, codec: Codec[Any] | None) -> Callable[[int], bool]:
    """Asked about each emitted token: whether it completes a stop string.

    `table`: of the stop strings of `params`. Raises `RequestError` for a codec without text, and for none.
    """
    wanted = f"stop={params.stop!r}"
    if (text := text_codec(codec, wanted)) is None:
        raise RequestError(f"{wanted} needs a tokenizer, and the model has none: use stop_token_ids")
    stream, stops = text.stream(), StopStrings(table, params.min_tokens)
    return lambda token: stops.push(stream.push(token)) is not None
