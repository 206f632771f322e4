"""Reports of published pages, in order, for routers on other machines: which page of which text is here, or gone.

    stored   page "Once upon a ..." behind nothing        id 1
    stored   page "time there was ..." behind it          id 2
    removed  page "time there was ..."                    id 3

An event names a page by a hash of its tokens and of all tokens before it, never by its tokens:

    root of a salt --> 16 tokens --> hash --> 16 tokens --> hash ...

Equal names mean equal beginnings of a text, on whatever machine. BLAKE2b of 8 bytes: over the page before (8 bytes,
least one first), then each token as 8 bytes, least one first. Without a salt the root is 0, else the hash of its UTF-8.
Ids of events rise by one. A router that comes late, or was away for more than `most` events, gets everything that is
here now.

Data in: calls of the engine's thread; data out: events, asked for by any thread.
"""

from collections import deque
from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack
from threading import Lock
from typing import Literal


def root_hash(salt: str | None) -> int:
    """What stands before the first page of a text."""
    return 0 if salt is None else _hash(salt.encode())


def page_hash(before: int, tokens: Seq[int]) -> int:
    """The name of the page that holds these tokens behind the page (or the root) `before`."""
    return _hash(pack(f"<Q{len(tokens)}Q", before, *(token & (1 << 64) - 1 for token in tokens)))


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEvent:
    """`cleared`: forget what was reported before; everything that is here follows."""

    id: int
    kind: Literal["stored", "removed", "cleared"]
    page: int | None = None
    before: int | None = None  # what the page stands behind: a page, or the root of its salt


@dataclass(slots=True)
class PageEvents:
    """A log of the last `most` events, and the pages that are here now."""

    most: int = 10_000
    _last: int = 0
    _log: deque[PageEvent] = field(default_factory=deque)
    _here: dict[int, tuple[int, int]] = field(default_factory=dict)  # number of a page -> (its hash, the one before)
    _lock: Lock = field(default_factory=Lock)

    def published(self, page: int, before: int | None, salt: Hashable, tokens: Seq[int]) -> None:
        """`page` holds these tokens behind page `before` (None: they begin a text of this salt)."""
        with self._lock:
            root = root_hash(_named(salt)) if before is None else self._here[before][0]
            self._here[page] = page_hash(root, tokens), root
            self._tell("stored", page)

    def evicted(self, page: int) -> None:
        """What stood in `page` is gone."""
        with self._lock:
            self._tell("removed", page)
            del self._here[page]

    def since(self, last: int | None) -> list[PageEvent]:
        """What happened after the event `last`; from None, and from one that is forgotten or not known, everything."""
        with self._lock:
            oldest = self._log[0].id if self._log else self._last + 1
            if last is not None and oldest - 1 <= last <= self._last:
                return [event for event in self._log if event.id > last]
            here = [self._event("stored", page) for page in self._here]  # in the order in which they came
            return [PageEvent(id=self._last, kind="cleared"), *here]

    def _tell(self, kind: Literal["stored", "removed"], page: int) -> None:
        self._last += 1
        self._log.append(self._event(kind, page))
        if len(self._log) > self.most:
            self._log.popleft()

    def _event(self, kind: Literal["stored", "removed"], page: int) -> PageEvent:
        name, before = self._here[page]
        return PageEvent(id=self._last, kind=kind, page=name, before=before)


def _named(salt: Hashable) -> str | None:
    """What the request named: a salt of the cache's has the position of the first token beside it."""
    named = salt[0] if isinstance(salt, tuple) else salt
    return None if named is None else str(named)
