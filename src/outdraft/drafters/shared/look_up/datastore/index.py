"""Look up in a datastore: what followed the longest end of the context that it holds. A `SpanIndex`.

The search already merges the hits and keeps the heaviest nodes of their trie. They come out as paths whose counts add
up to the nodes' counts again, so the tree builder that all look-ups share keeps exactly these.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.core.errors import ConfigError
from outdraft.drafters.shared.look_up.datastore.file import Datastore
from outdraft.drafters.shared.look_up.span_index import Sequel, paths
from outdraft.kernels.text_index.suffix_array import CorpusQuery, look_up


class DatastoreIndex:
    """`query`: how to look; its depth is the caller's."""

    def __init__(self, store: Datastore, query: CorpusQuery) -> None:
        self._corpus, self._query, self._path = store.corpus, query, store.path

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        tail = list(context[-self._query.max_match :])
        strange = [i for i, token in enumerate(tail) if token >= self._corpus.end]  # ids that no document has
        tail = tail[strange[-1] + 1 :] if strange else tail
        try:
            found = look_up(self._corpus, tail, replace(self._query, depth=depth))
        except RuntimeError as error:
            raise ConfigError(
                f"datastore {self._path} was changed while it was open ({error}): build it again"
            ) from error
        return paths(found.tokens, found.parents, found.counts)
