"""The requests that wait, in their order: by priority, and then by arrival.

A request that had to give back its memory keeps its place in the order, so it stands before those that came later.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from outdraft.core.sequence import Sequence

Rank = tuple[int, int]  # priority (the lower, the earlier), arrival


@dataclass(slots=True, eq=False)
class Queue:
    """Waiting sequences, first come first, and the rank of every unfinished one."""

    _waiting: list[tuple[Rank, Sequence]] = field(default_factory=list)
    _ranks: dict[int, Rank] = field(default_factory=dict)
    _arrivals: int = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return (seq for _, seq in self._waiting)

    def put(self, seq: Sequence) -> None:
        """Let it wait: at its rank, if it had one, and otherwise behind all of its priority."""
        if seq.id not in self._ranks:
            self._ranks[seq.id] = seq.request.priority, self._arrivals
            self._arrivals += 1
        insort(self._waiting, (self._ranks[seq.id], seq), key=lambda entry: entry[0])

    def first(self) -> Sequence:
        """The sequence that is next. Raises `IndexError` where none waits."""
        return self._waiting[0][1]

    def take(self, seq: Sequence) -> bool:
        """It waits no longer, and keeps its rank; false if it did not wait."""
        at = next((i for i, (_, one) in enumerate(self._waiting) if one is seq), None)
        if at is not None:
            del self._waiting[at]
        return at is not None

    def rank(self, seq: Sequence) -> Rank:
        """Of a sequence that has been put here and is not forgotten."""
        return self._ranks[seq.id]

    def forget(self, seq: Sequence) -> None:
        """Drop the rank of a sequence that is over."""
        self._ranks.pop(seq.id, None)
