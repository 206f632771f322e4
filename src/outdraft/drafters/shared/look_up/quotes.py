"""What a drafter makes of a request's references: once for all of its texts, and beside the steps where it is long.

    begin   the first text of a request has its index made, the others take the same one
    of      the index; None while it is not ready, or where there are no references
    end     it goes with the last text that uses it

No step waits for a long index: until it is there, the texts are drafted without. Texts of one request share one tuple
of references, by which they are known here, so that nothing is shared between requests.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Generic, TypeVar

from outdraft.core.sequence import Sequence

Index = TypeVar("Index")
Texts = tuple[tuple[int, ...], ...]
_AT_ONCE = 4096  # tokens that a step may index itself: some milliseconds
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Quoted(Generic[Index]):
    texts: Texts  # held, so that no other references have their identity
    num_users: int = 0
    index: Index | None = None


class Quotes(Generic[Index]):
    """`make` makes the index of some references; it knows nothing but them, and may run in another thread."""

    def __init__(self, make: Callable[[Texts], Index]) -> None:
        self._make = make
        self._entries: dict[int, _Quoted[Index]] = {}
        self._making = Lock()  # one at a time

    def __len__(self) -> int:
        """How many indices there are, or will be."""
        return len(self._entries)

    def begin(self, seq: Sequence) -> None:
        texts = seq.request.references
        if not texts:
            return
        entry = self._entries.setdefault(id(texts), _Quoted(texts))
        entry.num_users += 1
        if entry.num_users > 1:
            return
        if sum(map(len, texts)) <= _AT_ONCE:
            entry.index = self._make(texts)
        else:
            Thread(target=self._fill, args=(entry,), name="outdraft-references", daemon=True).start()

    def of(self, seq: Sequence) -> Index | None:
        entry = self._entries.get(id(seq.request.references))
        return None if entry is None else entry.index

    def end(self, seq: Sequence) -> None:
        entry = self._entries.get(id(seq.request.references))
        if entry is None:
            return
        entry.num_users -= 1
        if not entry.num_users:
            del self._entries[id(entry.texts)]

    def _fill(self, entry: _Quoted[Index]) -> None:
        try:
            with self._making:
                if entry.num_users:  # else its texts are over
                    entry.index = self._make(entry.texts)
        except Exception as error:
            _log.error("references could not be indexed, and nothing is drafted from them", exc_info=error)
