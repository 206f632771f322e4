"""Where every n-gram of some texts occurred, latest first, at constant cost a token.

    text   a b c a b | a b ?          extend: one dict entry and one link for each n
    ends       2     5                occurrences of the suffix "a b": what followed it, latest first

An n-gram is entered once a token follows it, so a growing text's suffix is never its own match. Only committed tokens
enter, so nothing is ever rolled back. Data in: token ids; data out: continuations, a `SpanIndex`.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq

from outdraft.drafters.shared.look_up.span_index import BORDER, Sequel, copy_on


class NgramIndex:
    """The n-grams of every n in [min_n, max_n], of one growing text or of several.

    `wrap`: a continuation that reaches the end of what is known goes on with itself (a text in a loop).
    """

    __slots__ = ("_heads", "_links", "_sizes", "_text", "_wrap")

    def __init__(self, min_n: int, max_n: int, *, wrap: bool = False) -> None:
        self._sizes = range(max_n, min_n - 1, -1)
        self._wrap = wrap
        self._text: list[int] = []
        self._heads: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._sizes}
        self._links: dict[int, list[int]] = {n: [] for n in self._sizes}  # [end of an n-gram] -> its previous end

    def __len__(self) -> int:
        """Tokens entered, borders included."""
        return len(self._text)

    def extend(self, tokens: Iterable[int]) -> None:
        """Enter the tokens that follow those entered so far."""
        begin = max(1, len(self._text))
        text = self._text
        text.extend(tokens)
        for follow in range(begin, len(text)):
            for n in self._sizes:
                if follow >= n:
                    heads, gram = self._heads[n], tuple(text[follow - n : follow])
                    self._links[n].append(heads.get(gram, -1))
                    heads[gram] = follow
                else:
                    self._links[n].append(-1)

    def close(self) -> None:
        """End the text: what is entered next is another one."""
        if self._text:
            self.extend([BORDER])

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        """What followed the longest known suffix of `context`, latest first; then what followed shorter ones."""
        for n in self._sizes:
            yield from self.sequels(context, n, depth)

    def sequels(self, context: Seq[int], n: int, depth: int) -> Iterator[Sequel]:
        """What followed the last n tokens of `context`, latest first."""
        at = self._heads[n].get(tuple(context[-n:]), -1)  # right behind the latest occurrence
        while at >= 0:
            if copied := copy_on(self._text, at, depth, wrap=self._wrap):
                yield Sequel(copied)
            at = self._links[n][at - 1]
