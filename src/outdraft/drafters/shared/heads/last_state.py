"""The state from which the target chose each text's pending token: what heads on the last layer read.

    text    x0 x1 x2 x3(pending)
    states  h0 h1 h2               h2 chose x3; heads read it and guess x4, x5, ...

Data in: what a pass showed; data out: one state [D] a sequence. A sequence whose prompt is not read has none.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.drafter import Seen
from outdraft.core.sequence import Sequence


class LastStates:
    """By sequence. `tap`: after how many layers; `norm`: what is done to states [n, D] before they are read."""

    def __init__(self, tap: int, norm: Callable[[Tensor], Tensor]) -> None:
        self._tap, self._norm = tap, norm
        self._known: dict[int, tuple[int, Tensor]] = {}  # sequence -> position of the state, state [D]

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        return not self._known

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing is known before the prompt is read."""

    def learn(self, one: Seen) -> None:
        """Keep the last committed row's."""
        self._known[one.seq.id] = one.start + one.num_committed - 1, one.hidden[self._tap][-1]

    def knows(self, seq: Sequence) -> bool:
        """Whether the state that chose the pending token is here."""
        found = self._known.get(seq.id)
        return found is not None and found[0] == len(seq.tokens) - 2

    def of(self, seqs: Seq[Sequence]) -> Tensor:
        """The states, one a sequence: [n, D]."""
        return self._norm(torch.stack([self._known[seq.id][1] for seq in seqs]))

    def forget(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._known.pop(seq.id, None)
