"""Where every n-gram of one growing text occurred, latest first, at constant cost a token.

    text   a b c a b | a b ?          extend: one dict entry and one link for each n
    ends       2     5                occurrences of the suffix "a b": what followed it, latest first

An n-gram is entered once a token follows it, so the suffix itself is never its own match. Only committed tokens enter,
so nothing is ever rolled back. Data in: token ids; data out: positions in the same text.
"""

from collections.abc import Iterator


class NgramIndex:
    """The n-grams of one sequence for every n in [min_n, max_n]."""

    __slots__ = ("_heads", "_links", "_num_entered", "_sizes")

    def __init__(self, min_n: int, max_n: int) -> None:
        self._sizes = range(min_n, max_n + 1)
        self._heads: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._sizes}
        self._links: dict[int, list[int]] = {n: [] for n in self._sizes}  # [end of an n-gram] -> its previous start
        self._num_entered = 0

    def extend(self, tokens: list[int]) -> None:
        """Enter what is new in `tokens`, the whole text so far."""
        for follow in range(self._num_entered + 1, len(tokens)):
            for n in self._sizes:
                links = self._links[n]
                if follow < n:
                    links.append(-1)
                    continue
                heads, gram = self._heads[n], tuple(tokens[follow - n : follow])
                links.append(heads.get(gram, -1))
                heads[gram] = follow
        self._num_entered = max(self._num_entered, len(tokens) - 1)

    def follows(self, tokens: list[int], n: int) -> Iterator[int]:
        """Positions right after earlier occurrences of the last n tokens, latest first."""
        at = self._heads[n].get(tuple(tokens[-n:]), -1)
        while at >= 0:
            yield at
            at = self._links[n][at - 1]
