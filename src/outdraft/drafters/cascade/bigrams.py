"""A common successor of each token: counted on a datastore's texts, or on what the engine has read so far.

    datastore   ".. of the .. of a .. of the .."      after("of") = "the", the commonest, counted once and kept
    no file     every text that is given counts, of each token at most eight successors

What is counted while decoding is bounded: where a ninth successor comes, all lose a count and those without one go
(Misra and Gries, 1982). So a successor that makes up more than a ninth stays; of those, the one with the largest
remaining count is taken. Data in: texts as token ids; data out: one token, or none.
"""

from collections.abc import Sequence as Seq
from itertools import pairwise

from outdraft.drafters.shared.look_up.datastore.file import Datastore
from outdraft.kernels.text_index.suffix_array import CorpusQuery

_WIDTH = 8  # successors that are counted for each token
_ONE = CorpusQuery(min_match=1, max_match=1, max_hits=5000, depth=1, max_nodes=1)  # of more places an even sample


class Bigrams:
    """One table for all texts of a salt."""

    __slots__ = ("_counts", "_known", "_store")

    def __init__(self, store: Datastore | None = None) -> None:
        self._store = store
        self._known: dict[int, int | None] = {}  # of the datastore, as far as it was asked
        self._counts: dict[int, dict[int, int]] = {}

    def learn(self, tokens: Seq[int]) -> None:
        """Count the pairs of a piece of text; with a datastore its own counts stand."""
        if self._store is not None:
            return
        for token, follower in pairwise(tokens):
            counts = self._counts.setdefault(token, {})
            if follower in counts or len(counts) < _WIDTH:
                counts[follower] = counts.get(follower, 0) + 1
            else:
                self._counts[token] = {known: count - 1 for known, count in counts.items() if count > 1}

    def after(self, token: int) -> int | None:
        """The successor with the largest count, of equals the one that came first; None where none is counted.

        Raises `ConfigError` if the datastore was changed while it was open.
        """
        if self._store is None:
            counts = self._counts.get(token)
            return max(counts, key=counts.__getitem__) if counts else None
        if token not in self._known:
            found = self._store.look_up([token], _ONE).tokens if token < self._store.corpus.end else []
            self._known[token] = found[0] if found else None
        return self._known[token]
