"""The suffix automaton of a growing text: the longest end of a context that the text has, and where it has it.

    text  a b c a b        match 2 ("a b"), match_end 1: the text had it ending there before

Blumer et al., "The smallest automaton recognizing the subwords of a text", 1985,
https://doi.org/10.1016/0304-3975(85)90157-4. A token costs O(1) amortised, to learn as to read. `make_automaton` gives
the native one (about 100 bytes a token), or where it is not built the same in Python. Data in: token ids.
"""

import ctypes
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.kernels.index_types import CCursor, ids
from outdraft.kernels.library import check, require_library, wanted_kind


@dataclass(slots=True)
class Cursor:
    """How far another text's end is known: `length` of its last tokens."""

    state: int = 0
    length: int = 0


class NativeAutomaton:
    """A suffix automaton of one growing text, which learns it token by token, through the C interface."""

    def __init__(self) -> None:
        self._native = native = require_library()
        self._handle = check(native.od_automaton_new())

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._native.od_automaton_free(self._handle)

    @property
    def match(self) -> int:
        """Length of the longest end of the text that it had before."""
        return int(self._native.od_automaton_match(self._handle))

    @property
    def match_end(self) -> int:
        """Position of that earlier occurrence's last token."""
        return int(self._native.od_automaton_match_end(self._handle))

    @property
    def num_bytes(self) -> int:
        return int(self._native.od_automaton_bytes(self._handle))

    def extend(self, tokens: Seq[int]) -> None:
        address, length, _held = ids(tokens)
        check(self._native.od_automaton_extend(self._handle, address, length))

    def read(self, cursor: Cursor, tokens: Seq[int]) -> None:
        """Another text goes on: move its cursor."""
        address, length, _held = ids(tokens)
        at = CCursor(cursor.state, cursor.length)
        check(self._native.od_automaton_read(self._handle, at, address, length))
        cursor.state, cursor.length = at.state, at.length

    def end(self, cursor: Cursor) -> int:
        """Position in the own text where what the cursor knows ends."""
        end = ctypes.c_int32()
        check(self._native.od_automaton_end(self._handle, CCursor(cursor.state, cursor.length), end))
        return end.value


class AutomatonReference:
    """The same in Python: one dictionary of edges a state."""

    def __init__(self) -> None:
        self.match, self.match_end = 0, -1
        self._edges: list[dict[int, int]] = [{}]
        self._links, self._lengths, self._ends = [-1], [0], [-1]
        self._last = self._size = 0

    def extend(self, tokens: Seq[int]) -> None:
        for token in tokens:
            self._append(token)
            longest = self._links[self._last]
            self.match, self.match_end = self._lengths[longest], self._ends[longest]
            self._ends[longest] = self._size - 1  # next time this is the latest place

    def read(self, cursor: Cursor, tokens: Seq[int]) -> None:
        for token in tokens:
            while cursor.state and token not in self._edges[cursor.state]:
                cursor.state = self._links[cursor.state]
                cursor.length = self._lengths[cursor.state]
            known = token in self._edges[cursor.state]
            cursor.length = cursor.length + 1 if known else 0
            cursor.state = self._edges[cursor.state].get(token, 0)

    def end(self, cursor: Cursor) -> int:
        return self._ends[cursor.state]

    def _append(self, token: int) -> None:
        made = self._make({}, 0, self._lengths[self._last] + 1, self._size)
        self._size += 1
        at, self._last = self._last, made
        while at >= 0 and token not in self._edges[at]:
            self._edges[at][token] = made
            at = self._links[at]
        if at < 0:
            return
        to = self._edges[at][token]
        if self._lengths[to] == self._lengths[at] + 1:
            self._links[made] = to
            return
        half = self._make(dict(self._edges[to]), self._links[to], self._lengths[at] + 1, self._ends[to])
        while at >= 0 and self._edges[at].get(token) == to:
            self._edges[at][token] = half
            at = self._links[at]
        self._links[to] = self._links[made] = half

    def _make(self, edges: dict[int, int], link: int, length: int, end: int) -> int:
        self._edges.append(edges)
        self._links.append(link)
        self._lengths.append(length)
        self._ends.append(end)
        return len(self._edges) - 1


Automaton = NativeAutomaton | AutomatonReference


def make_automaton() -> Automaton:
    """A suffix automaton: native where the kernels are built, else the twin in Python."""
    return NativeAutomaton() if wanted_kind() else AutomatonReference()
