"""The contract between memory and the scheduler: how many pages there are, who has them, and what fits into a pass.

    pages of 16 rows    taken: by running texts    kept: of earlier texts, given up when wanted    free: no text's

All numbers are pages of the target's cache. A drafter that keeps rows of its own has as many pages as the target. Where
they do not suffice, its guess ends with the tokens that it has drawn so far: what is drawn is never dropped.
"""

from dataclasses import dataclass, field
from typing import Protocol

from outdraft.core.sequence import Sequence


class Room(Protocol):
    """What the target can hold, asked between two passes."""

    @property
    def mixes(self) -> bool:
        """Whether prompt chunks of any length may share a pass with decoding rows: no bit depends on it."""

    @property
    def slices(self) -> int:
        """In how many slices a pass over a prompt's chunk may run, with other passes between them; 1: it is whole."""

    @property
    def capacity(self) -> int | None:
        """The most rows that one text can ever have, all of the memory for itself; None: as many as it likes."""

    @property
    def cuts(self) -> bool:
        """Whether a text that wants more than the capacity ends there; it is refused where the user chose that."""

    @property
    def free(self) -> int:
        """Pages that no running text has. Asked where there is a `capacity`."""

    def wanted(self, seq: Sequence) -> int:
        """Pages that a waiting text will take to be read, but those that it will share with running ones."""

    def awaits(self, seq: Sequence, reader: Sequence) -> bool:
        """Whether a waiting text should not join yet: a running one is reading what it could take over."""

    def missing(self, seq: Sequence, num_rows: int) -> int:
        """Pages that a running text needs beyond its own for so many more rows."""

    def held(self, seq: Sequence) -> int:
        """Pages that are free once this running text has gone."""

    def forget(self) -> None:
        """Keep nothing of texts that are over, neither the target's rows nor drafters'."""


@dataclass(eq=False, kw_only=True)
class Unbounded:
    """Memory grows as it is asked for."""

    mixes: bool = False
    slices: int = 1
    capacity: int | None = field(default=None, init=False)
    cuts = False
    free = 0

    def wanted(self, seq: Sequence) -> int:
        return 0

    def awaits(self, seq: Sequence, reader: Sequence) -> bool:
        return False

    def missing(self, seq: Sequence, num_rows: int) -> int:
        return 0

    def held(self, seq: Sequence) -> int:
        return 0

    def forget(self) -> None:
        """No text's memory outlives it, so there is nothing to give up."""
