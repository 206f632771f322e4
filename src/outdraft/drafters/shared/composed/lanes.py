"""Independent coins for several drafters of one sequence.

Two drafters that ask the same coins of the same place would draw alike, and no rule may take such siblings for
independent ones. Under the coupled rule they shall draw alike, and do: there the noise belongs to the position.
Data in: a sequence and a lane; data out: a view of the sequence whose draft coins are the lane's own.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from outdraft.core.coins import DraftCoins
from outdraft.core.sequence import Sequence
from outdraft.sampling.noise import fold


@dataclass(frozen=True, slots=True)
class _LaneCoins:
    inner: DraftCoins
    lane: int

    def draw(self, distribution: Tensor, depth: int, ordinal: int, count: int = 1) -> list[int]:
        """The same question, under an ordinal of this lane."""
        return self.inner.draw(distribution, depth, fold(self.lane, ordinal), count)

    def in_round(self, position: int) -> "_LaneCoins":
        """This lane of the inner coins of that round."""
        return replace(self, inner=self.inner.in_round(position))


def in_lane(seq: Sequence, lane: int) -> Sequence:
    """The sequence as the drafter of this lane sees it: the same tokens, other coins. Lane 0 is the sequence itself."""
    if lane == 0:
        return seq
    return replace(seq, draft_coins=lambda inner: _LaneCoins(seq.draft_coins(inner), lane))
