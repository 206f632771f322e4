"""The commonest successor of each token: counted on a datastore's texts, or on what the engine has read so far.

    datastore   ".. of the .. of a .. of the .."      after("of") = "the", counted once and kept
    no file     every text that is told counts, of each token the eight successors that came most

What is counted while decoding is bounded: where a ninth successor comes, all lose a count and those without one go
(Misra and Gries, 1982), so the commonest one stays. Data in: texts as token ids; data out: one token, or none.
"""

from collections.abc import Sequence as Seq
from itertools import pairwise

from outdraft.drafters.shared.look_up.datastore.file import Datastore
from outdraft.kernels.text_index.suffix_array import CorpusQuery, look_up

_WIDTH = 8  # successors that are counted for each token
_ONE = CorpusQuery(min_match=1, max_match=1, max_hits=5000, depth=1, max_nodes=1)  # of more places an even sample


class Bigrams:
    """One table for all texts."""

    __slots__ = ("_corpus", "_counts", "_known")

    def __init__(self, store: Datastore | None = None) -> None:
        self._corpus = None if store is None else store.corpus
        self._known: dict[int, int | None] = {}  # of the datastore, as far as somebody has asked
        self._counts: dict[int, dict[int, int]] = {}

    def learn(self, tokens: Seq[int]) -> None:
        """Count the pairs of a piece of text; with a datastore its own counts stand."""
        if self._corpus is not None:
            return
        for token, follower in pairwise(tokens):
            counts = self._counts.setdefault(token, {})
            if follower in counts or len(counts) < _WIDTH:
                counts[follower] = counts.get(follower, 0) + 1
            else:
                self._counts[token] = {known: count - 1 for known, count in counts.items() if count > 1}

    def after(self, token: int) -> int | None:
        """The commonest successor, of equals the one that came first; None for a token that was never followed."""
        if self._corpus is None:
            counts = self._counts.get(token)
            return max(counts, key=counts.__getitem__) if counts else None
        if token not in self._known:
            found = look_up(self._corpus, [token], _ONE).tokens if token < self._corpus.end else []
            self._known[token] = found[0] if found else None
        return self._known[token]

    def forget(self) -> None:
        """Drop what was counted while decoding."""
        self._counts.clear()
