"""Medians of ratios with intervals: how far a speed-up would move with other prompts and other rounds of the same kind.

Prompts and rounds are drawn anew, with replacement, as often as there are some (Efron, "Bootstrap methods: another look
at the jackknife", 1979, https://doi.org/10.1214/aos/1176344552); the interval is the middle 95 % of what comes out. The
randomness is fixed: the same records give the same interval.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS, MIDDLE = 2000, 0.95
Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure and where it may lie."""

    value: float
    low: float
    high: float

    def excludes(self, other: float) -> bool:
        """Whether `other` is outside."""
        return not self.low <= other <= self.high


def paired_ratio(plain: Table, mine: Table) -> Interval:
    """Median over rounds of plain seconds / own seconds, all prompts together: [P, R], [P, R], rounds paired."""
    rng = np.random.default_rng(0)
    num_prompts, num_rounds = plain.shape
    prompts = rng.integers(num_prompts, size=(DRAWS, num_prompts))
    rounds = rng.integers(num_rounds, size=(DRAWS, 1, num_rounds))
    drawn = [np.take_along_axis(table[prompts], rounds, axis=2).sum(axis=1) for table in (plain, mine)]
    middle = np.median(plain.sum(axis=0) / mine.sum(axis=0))
    low, high = np.quantile(np.median(drawn[0] / drawn[1], axis=1), [(1 - MIDDLE) / 2, (1 + MIDDLE) / 2])
    return Interval(value=float(middle), low=float(low), high=float(high))
