"""Bad words of several tokens: which of their last tokens may not come next, found at the cost of the longest match.

    words  the old man, old man, old boat        a tree of what stands before the last token, from the back:
    text   ... the old | man and boat are bad              old -> man, boat;   old, the -> man

Data in: words as token ids, and the end of a text from its last token backwards; data out: ids that may not follow.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq


class _Node:
    __slots__ = ("before", "never")

    def __init__(self) -> None:
        self.before: dict[int, _Node] = {}
        self.never: list[int] = []


class BadWords:
    """The words of one request; those of a single token are left out."""

    def __init__(self, words: Iterable[Seq[int]]) -> None:
        self._root = _Node()
        for word in words:
            node = self._root
            for token in reversed(word[:-1]):
                if token not in node.before:
                    node.before[token] = _Node()
                node = node.before[token]
            if node is not self._root:
                node.never.append(word[-1])

    def after(self, text: Iterable[int]) -> list[int]:
        """What may not follow `text`, which is read from its end, as far as a word may reach."""
        never: list[int] = []
        node = self._root
        for token in text:
            if token not in node.before:
                break
            node = node.before[token]
            never += node.never
        return never
