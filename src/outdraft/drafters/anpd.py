"""Adaptive n-gram drafting: counters of every order learn from each accepted token and guess greedily.

Ou, Chen and Tian, "Lossless acceleration of large language model via adaptive n-gram parallel decoding", 2024,
https://arxiv.org/abs/2404.08698.

    counts  (a b c): 2   (a b d): 1        best  (a b): c        of equal counts the later one
    guess   ... a b -> c -> ...            longest known context first, one token at a time

Data in: committed token ids; data out: a deterministic chain. A token costs one count for each order, so nothing grows
with the length of the text, and nothing is rolled back: rejected tokens never enter.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.method import DrafterMethod, arxiv
from outdraft.drafters.shared.look_up.lookup_drafter import LookupDrafter
from outdraft.drafters.shared.look_up.span_index import Sequel
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NGRAM


@dataclass(frozen=True, slots=True, kw_only=True)
class AnpdOptions:
    """Which n-grams are counted. Raises `ConfigError` naming what is out of range."""

    # the number of tokens of the longest n-gram that is counted (the paper's N), the guessed token included
    max_order: int = 5
    min_order: int = 2  # the number of tokens of the shortest n-gram that is counted; 2 guesses from a single token

    def __post_init__(self) -> None:
        if not 2 <= self.min_order <= self.max_order <= MOST_NGRAM:
            raise ConfigError(
                f"min_order={self.min_order}, max_order={self.max_order}: need 2 <= min_order <= max_order <= "
                f"{MOST_NGRAM}"
            )


class NgramCounts:
    """How often each n-gram occurred, and the most frequent successor of each context.

    Fields:
        counts: n-gram -> how often.
        best: context, an n-gram less its last token -> its most frequent successor, of equals the latest.
    """

    __slots__ = ("_orders", "_tail", "best", "counts")

    def __init__(self, min_order: int, max_order: int) -> None:
        self._orders = range(max_order, min_order - 1, -1)
        self._tail: list[int] = []  # the last max_order - 1 tokens
        self.counts: dict[tuple[int, ...], int] = {}
        self.best: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        """Count the tokens that follow those counted so far."""
        text = [*self._tail, *tokens]
        for end in range(len(self._tail), len(text)):
            for n in self._orders:
                if end + 1 >= n:
                    self._count(tuple(text[end + 1 - n : end + 1]))
        self._tail = text[1 - self._orders[0] :]

    def _count(self, gram: tuple[int, ...]) -> None:
        counts, context, token = self.counts, gram[:-1], gram[-1]
        count = counts[gram] = counts.get(gram, 0) + 1
        leader = self.best.get(context)
        if leader is None or count >= counts[*context, leader]:
            self.best[context] = token

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        """The one chain: at each place the longest known context's best token."""
        text = list(context[1 - self._orders[0] :])
        known = len(text)
        while len(text) < known + depth:
            for n in self._orders:
                token = self.best.get(tuple(text[1 - n :]))
                if token is not None:
                    text.append(token)
                    break
            else:
                break
        if len(text) > known:
            yield Sequel(text[known:])


METHOD: DrafterMethod[AnpdOptions, TargetPort, LookupDrafter] = DrafterMethod(
    name="anpd",
    summary="n-gram counters that learn from every accepted token (no model)",
    build=lambda options, port: LookupDrafter(lambda seq: NgramCounts(options.min_order, options.max_order)),
    options=AnpdOptions,
    paper=arxiv("2404.08698", "Lossless acceleration of large language model via adaptive n-gram parallel decoding"),
)
