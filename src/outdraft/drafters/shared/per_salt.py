"""A memory for each salt: what a drafter keeps of one request for later ones, kept apart by `Request.cache_salt`.

    salts    None   "user 7"   "user 8"        at most MOST; of more the least recently used goes, with all it knew
    memory   tree    tree       tree           made when its salt first comes, empty

A guess that is right is quicker than one that is wrong, so who may see how fast an answer comes could find out what the
drafter has read. A drafter therefore looks in the memory of the request's own salt alone. Requests without a salt share
one memory, which is a salt like the others.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from outdraft.core.sequence import Sequence

MOST = 16  # memories at once
Memory = TypeVar("Memory")


class PerSalt(Generic[Memory]):
    """`make` makes an empty memory."""

    def __init__(self, make: Callable[[], Memory]) -> None:
        self._make = make
        self._memories: OrderedDict[str | None, Memory] = OrderedDict()

    def __len__(self) -> int:
        return len(self._memories)

    def of(self, seq: Sequence) -> Memory:
        """The memory of the sequence's salt; ask again in every round, for it may have gone meanwhile."""
        salt = seq.request.cache_salt
        if salt not in self._memories:
            self._memories[salt] = self._make()
            if len(self._memories) > MOST:
                self._memories.popitem(last=False)
        self._memories.move_to_end(salt)
        return self._memories[salt]

    def forget(self) -> None:
        self._memories.clear()
