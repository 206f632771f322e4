"""How deep and how large a guess may be: the budget, cut where the context ends; and when a branch may end early.

Every node has a row in the target's cache while it is judged, also the rejected ones, so near the end of the context a
tree must not have more nodes than there is room for rows. Data in: a sequence and its budget; data out: numbers >= 0.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.calibration import Calibration
from outdraft.core.policy import Budget, StateJudge
from outdraft.core.sequence import Sequence
from outdraft.options.ranges import MOST_NODES

MAX_NODES = MOST_NODES  # of one guess, and rows that a draft model keeps of it


def usable_depth(seq: Sequence, budget: Budget) -> int:
    """Draft tokens along the longest path."""
    return usable_nodes(seq, budget, budget.depth)


def usable_nodes(seq: Sequence, budget: Budget, wanted: int) -> int:
    """Draft nodes in all, probes included, of the `wanted` ones."""
    if budget.nodes is not None:
        wanted = min(wanted, budget.nodes)
    return max(0, min(wanted, seq.max_len - len(seq.tokens)))


@dataclass(frozen=True, slots=True)
class Cutoff:
    """A branch ends after a token less probable than `token`, or on a path less probable than `path`; 0: never."""

    token: float = 0.0
    path: float = 0.0
    calibration: Calibration | None = None  # of the probabilities that `path` multiplies; None: they are taken as given
    judge: StateJudge | None = None  # whose chances `path` multiplies in their place
    confident: bool = False  # confidences are wanted in any case

    @property
    def is_asked(self) -> bool:
        """Whether confidences are wanted at all."""
        return self.confident or self.token > 0 or (self.path > 0 and self.judge is None)

    def chance(self, sure: float) -> float:
        """What a token of this probability counts in its path."""
        return sure if self.calibration is None else self.calibration(sure)


def cutoffs_of(budgets: Seq[Budget], own: float = 0.0) -> list[Cutoff]:
    """One for each budget: the drafter's own threshold, or the budget's where that is higher."""
    return [
        Cutoff(max(own, one.confidence), one.survival, one.calibration, one.judge, one.confident) for one in budgets
    ]
