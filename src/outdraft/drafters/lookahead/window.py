"""Lookahead's state: the window, in which Jacobi iteration produces n-grams, and the pool that collects them.

Fu, Bailis, Stoica and Zhang, "Break the sequential dependency of LLM inference using lookahead decoding", 2024,
https://arxiv.org/abs/2402.02057. One window row a level, one column a position:

    level 0   root g1 g2 g3      the pass's argmax below the last level completes the n-gram of each column:
    level 1    a   b  c  d           key root, tuple (a, e, new0)
    level 2    e   f  g  h       then level 1 becomes level 0, and the new tokens the last level.

Data in: token ids; data out: token ids. Neither knows tensors.
"""

from collections.abc import Callable


class Window:
    """N - 1 levels of W guesses. It starts with one long level and loses a column for each level that fills."""

    __slots__ = ("_fresh", "_num_levels", "levels")

    def __init__(self, width: int, ngram: int, fresh: Callable[[], int]) -> None:
        self._num_levels = ngram - 1
        self._fresh = fresh  # a token to start from
        self.levels: list[list[int]] = [[fresh() for _ in range(width + ngram - 2)]]

    @property
    def ripe(self) -> bool:
        """Whether the next pass completes n-grams."""
        return len(self.levels) == self._num_levels

    def set_root(self, token: int) -> None:
        """Column 0 of level 0 is the pending token itself."""
        self.levels[0][0] = token

    def advance(self, new: list[int], banned: frozenset[int]) -> list[tuple[int, tuple[int, ...]]]:
        """Take the argmax below the last level, one a column; returns the n-grams (key, tuple) that this completes.

        `banned` tokens (ends of text) never enter the window: nothing can be learned behind them.
        """
        made: list[tuple[int, tuple[int, ...]]] = []
        if self.ripe:
            made = [(column[0], (*column[1:], last)) for *column, last in zip(*self.levels, new, strict=True)]
        new = [self._fresh() if token in banned else token for token in new]
        if self.ripe:
            self.levels = [*self.levels[1:], new]
        else:
            # The text has moved on by one, so every level loses the column that it has passed.
            self.levels = [level[1:] for level in (*self.levels, new)]
        return made


class Pool:
    """At most `limit` tuples a key, least recently seen first out."""

    __slots__ = ("_limit", "_tuples")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tuples: dict[int, dict[tuple[int, ...], None]] = {}

    def add(self, key: int, tokens: tuple[int, ...]) -> None:
        """Remember a tuple, or renew it."""
        seen = self._tuples.setdefault(key, {})
        seen.pop(tokens, None)
        seen[tokens] = None
        if len(seen) > self._limit:
            del seen[next(iter(seen))]

    def get(self, key: int) -> list[tuple[int, ...]]:
        """The key's tuples, latest first."""
        return list(reversed(self._tuples.get(key, {})))
