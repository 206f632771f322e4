"""The states that a pass showed of one text: some rows of a matrix that all texts of the pass share.

They are copied when a drafter asks for them. Of a batch, few texts may have a drafter that wants them, and one that
listens without guessing may never look: copying each text's row of each tap would cost batches of short passes several
percent.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

_FEW = 64  # rows of a pass that may be kept whole


class RowsOf(Mapping[int, Tensor]):
    """tap -> [n, D], a copy. Keeping this keeps all rows of its pass: see `kept`."""

    __slots__ = ("_rows", "_whole")

    def __init__(self, whole: Mapping[int, Tensor], rows: list[int]) -> None:
        self._whole, self._rows = whole, rows

    def __getitem__(self, tap: int) -> Tensor:
        shown = self.shown(tap)
        return shown.clone() if self._are_neighbours() else shown

    def shown(self, tap: int) -> Tensor:
        """The same rows [n, D], for a caller that reads them at once: neighbours are a part of the pass's matrix."""
        rows, whole = self._rows, self._whole[tap]
        return whole[rows[0] : rows[-1] + 1] if self._are_neighbours() else whole[rows]

    @property
    def has_few(self) -> bool:
        """Whether the whole pass had few rows."""
        return max(map(len, self._whole.values()), default=0) <= _FEW

    def _are_neighbours(self) -> bool:
        rows = self._rows  # of a prompt many: to take them by a list is slow
        return bool(rows) and rows == list(range(rows[0], rows[0] + len(rows)))

    def __iter__(self) -> Iterator[int]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


def kept(states: Mapping[int, Tensor]) -> Mapping[int, Tensor]:
    """What may be kept of a pass for a while: itself where that holds little more, else copies."""
    return states if isinstance(states, RowsOf) and states.has_few else dict(states)


def joined(passes: Seq[Mapping[int, Tensor]]) -> dict[int, Tensor]:
    """The rows of one pass or more, one behind the other, as copies of their own: tap -> [n, D]."""
    if len(passes) == 1:
        return dict(passes[0])
    shown = {tap: [one.shown(tap) if isinstance(one, RowsOf) else one[tap] for one in passes] for tap in passes[0]}
    return {tap: torch.cat(parts) for tap, parts in shown.items()}
