"""The drafter of every method that indexes a request's own text: enter what was committed, look up, merge, propose.

    begin    an index for the request           propose    index.extend(what is new), then `look_up`
    end      forget it                          observe    nothing: the text is in `seq.tokens`

Only committed tokens are ever entered, so nothing is rolled back. Data in: how to make an index for a sequence; data
out: deterministic chains (width 1) or trees.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.look_up.quotes import Quotes, Texts
from outdraft.drafters.shared.look_up.span_index import SpanIndex, look_up
from outdraft.drafters.shared.plain import OneByOne
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NGRAM, MOST_NODES


def check_ngrams(min_ngram: int, max_ngram: int, width: int) -> None:
    """Raise `ConfigError` unless 1 <= min_ngram <= max_ngram <= `MOST_NGRAM` and 1 <= width <= `MOST_NODES`."""
    if not 1 <= min_ngram <= max_ngram <= MOST_NGRAM:
        raise ConfigError(
            f"min_ngram={min_ngram}, max_ngram={max_ngram}: need 1 <= min_ngram <= max_ngram <= {MOST_NGRAM}"
        )
    if not 1 <= width <= MOST_NODES:
        raise ConfigError(f"width={width}: must be between 1 (a chain) and {MOST_NODES}")


class Grows(Protocol):
    """What learns from a growing text."""

    def extend(self, tokens: list[int], /) -> None:
        """Enter the tokens that follow those entered so far."""


class TextIndex(SpanIndex, Grows, Protocol):
    """A look-up that learns from a growing text."""


Index = TypeVar("Index", bound=Grows)
Quoted = TypeVar("Quoted")


@dataclass(slots=True)
class Known(Generic[Index]):
    """An index and how much of its sequence is in it."""

    index: Index
    num_entered: int = 0

    def follow(self, seq: Sequence) -> Index:
        self.index.extend(seq.tokens[self.num_entered :])
        self.num_entered = len(seq.tokens)
        return self.index


class IndexDrafter(OneByOne, Generic[Index, Quoted]):
    """An index of each text, and where `quote` makes one, an index of its request's references."""

    def __init__(self, make_index: Callable[[Sequence], Index], quote: Callable[[Texts], Quoted] | None = None) -> None:
        self._make_index = make_index
        self._quotes = None if quote is None else Quotes(quote)
        self._known: dict[int, Known[Index]] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        """An index for each, and one for its references."""
        for seq in seqs:
            self._known[seq.id] = Known(self._make_index(seq))
            if self._quotes is not None:
                self._quotes.begin(seq)

    def end(self, seqs: Seq[Sequence]) -> None:
        """The indices of text and references go with their sequence."""
        for seq in seqs:
            if self._known.pop(seq.id, None) is not None and self._quotes is not None:
                self._quotes.end(seq)

    def own(self, seq: Sequence) -> Index:
        """The text's index, with all of it entered."""
        return self._known[seq.id].follow(seq)

    def quoted(self, seq: Sequence) -> Quoted | None:
        """The index of its references; None where there are none, or while it is not ready."""
        return None if self._quotes is None else self._quotes.of(seq)


class LookupDrafter(IndexDrafter[TextIndex, object]):
    """`width` different continuations at most, merged into one tree; 1: a chain."""

    traits = Traits(peeks=True)

    def __init__(self, make_index: Callable[[Sequence], TextIndex], width: int = 1) -> None:
        super().__init__(make_index)
        self._width = width

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """What followed the last tokens elsewhere; node 0 alone if they are new."""
        if not budget.depth:
            return chain(seq.tokens[-1:])
        return look_up(self.own(seq), seq, budget, max_nodes=self._width * budget.depth, max_branches=self._width)
