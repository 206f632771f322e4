"""Look up in a datastore: what followed the longest end of the context that it holds. A `SpanIndex`.

The search already merges the hits and keeps the heaviest nodes of their trie. They come out as paths whose counts add
up to the nodes' counts again, so the tree builder that all look-ups share keeps exactly these.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.drafters.shared.look_up.datastore.file import Datastore
from outdraft.drafters.shared.look_up.span_index import Sequel, paths
from outdraft.kernels.text_index.suffix_array import CorpusQuery


class DatastoreIndex:
    """`query`: how to look; its depth is the caller's."""

    def __init__(self, store: Datastore, query: CorpusQuery) -> None:
        self._store, self._query = store, query

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        tail = list(context[-self._query.max_match :])
        strange = [i for i, token in enumerate(tail) if token >= self._store.corpus.end]  # ids that no document has
        tail = tail[strange[-1] + 1 :] if strange else tail
        found = self._store.look_up(tail, replace(self._query, depth=depth))
        return paths(found.tokens, found.parents, found.counts)
