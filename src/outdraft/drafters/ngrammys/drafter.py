"""N-Grammys' drafter: rows from the text first, the rest from the model's tables, merged into one tree.

Stewart et al., 2024, https://arxiv.org/abs/2411.03786.

    k rows   what followed the last q tokens in the text, the most frequent first      count >= 1
             then t1 t2 t3 ..., t1 among the model's best after the last token,         count = p(t1 | last) < 1
             t2 the best after t1, t3 the best after t2

The paper verifies the rows as a batch; a tree has the same distribution and fewer nodes. Data in: committed tokens, the
tables; data out: a deterministic tree.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from outdraft.core.sequence import Sequence
from outdraft.drafters.ngrammys.cache import load_tables
from outdraft.drafters.ngrammys.rows import TableRows
from outdraft.drafters.shared.look_up.lookup_drafter import LookupDrafter
from outdraft.drafters.shared.look_up.ngram_index import NgramIndex
from outdraft.drafters.shared.look_up.span_index import Sequel
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NGRAM, check_range

_TABLE_WIDTH = 16  # successors kept at least, so that a change of `rows` need not make the tables again
_MAX_LOOKS = 64  # places of the text that are compared: bounds the cost of very common tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class NgrammysOptions:
    """How rows are made. Raises `ConfigError` naming what is out of range."""

    rows: int = 10  # how many continuations are proposed, those of the text and those of the tables together (k)
    query: int = 1  # how many tokens at the end of the text must match (q)
    context: bool = True  # whether continuations are taken from the text itself
    # where the other continuations begin: "bigram", after the last token; "unigram", with the mean of all bigrams
    table: Literal["bigram", "unigram", "none"] = "bigram"
    # a continuation of the table ends where the product of its probabilities falls below this; 0 never ends one
    min_prob: float = 0.001
    # the directory where the tables are kept; when empty, outdraft/ngrammys in the user's cache directory
    cache_dir: str = ""

    def __post_init__(self) -> None:
        check_range(self, "rows", least=1, most=256, note="of every token of the vocabulary")
        check_range(self, "query", least=1, most=MOST_NGRAM)
        if not 0 <= self.min_prob < 1:
            raise ConfigError(f"min_prob={self.min_prob}: must be at least 0 and below 1")
        if self.table not in ("bigram", "unigram", "none"):
            raise ConfigError(f"table={self.table!r}: it is 'bigram', 'unigram' or 'none'")
        if self.table == "none" and not self.context:
            raise ConfigError("context=False, table='none': nothing is left to guess from; turn one of them on")


class MixedIndex:
    """The text's n-grams, then the model's tables."""

    __slots__ = ("_table", "_text")

    def __init__(self, text: NgramIndex | None, table: TableRows | None) -> None:
        self._text, self._table = text, table

    def extend(self, tokens: Iterable[int]) -> None:
        """Enter the tokens that follow those entered so far."""
        if self._text is not None:
            self._text.extend(tokens)

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        """Rows of the text, the most frequent first, then rows of the table; who asks takes as many as it wants."""
        if self._text is not None:
            found = islice(self._text.lookup(context, depth), _MAX_LOOKS)
            for row, count in Counter(tuple(one.tokens) for one in found).most_common():
                yield Sequel(row, count)
        if self._table is not None:
            yield from self._table.after(context[-1], depth)


def build(options: NgrammysOptions, port: TargetPort) -> LookupDrafter:
    """Take the tables from the cache directory, or make them: one pass of one token for each of the vocabulary."""
    table = None
    if options.table != "none":
        width = max(options.rows, _TABLE_WIDTH)
        tables = load_tables(port.layers.score, port.facts.vocab_size, width=width, directory=options.cache_dir)
        table = TableRows(tables, everywhere=options.table == "unigram", min_prob=options.min_prob)

    def make_index(seq: Sequence) -> MixedIndex:
        text = NgramIndex(options.query, options.query) if options.context else None
        return MixedIndex(text, table)

    return LookupDrafter(make_index, options.rows)
