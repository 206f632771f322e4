"""`Once`: what is made of a request one time, and not again for each of its texts or each of their passes.

A mask over the vocabulary, an index of its references: `n` texts read the same one. It goes when the request does.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Once(dict[Hashable, Any]):
    """One for a request. What is in it depends on its key and on the request, which never changes."""

    def __reduce__(self) -> tuple[type["Once"], tuple[()]]:
        """Elsewhere it is made anew."""
        return Once, ()

    def of(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` makes. Two threads that ask at once may both make it, and get the same."""
        if key not in self:
            self.setdefault(key, make())
        found: T = self[key]
        return found
