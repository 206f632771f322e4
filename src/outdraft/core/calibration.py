"""Calibration: an increasing map from a drafter's confidence to the measured chance that its token is accepted.

The probability that a network gives its token is not the chance that the target accepts it (Guo et al., "On
calibration of modern neural networks", 2017, https://arxiv.org/abs/1706.04599). A policy that has measured the
difference hands the map to the drafter with its budget. Data in: a confidence in 0 .. 1; data out: a chance in 0 ..
1.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from outdraft.options.errors import ConfigError


class Knot(NamedTuple):
    """A point through which the map from confidence to chance of acceptance goes."""

    said: float  # the drafter's probability of its token
    found: float  # share of such tokens that were accepted


@dataclass(frozen=True, slots=True)
class Calibration:
    """Linear between its knots, constant outside them.

    Raises `ConfigError` unless `said` rises and `found` never falls, both in 0 .. 1.
    """

    knots: tuple[Knot, ...]

    def __post_init__(self) -> None:
        if not self.knots:
            raise ConfigError("a calibration needs at least one knot (said, found)")
        for knot in self.knots:
            if not (0 <= knot.said <= 1 and 0 <= knot.found <= 1):
                raise ConfigError(f"{knot}: both numbers of a calibration's knot must be between 0 and 1")
        for left, right in zip(self.knots, self.knots[1:], strict=False):
            if right.said <= left.said or right.found < left.found:
                raise ConfigError(f"{left}, {right}: a calibration's knots must rise in `said` and not fall in `found`")

    def __call__(self, said: float) -> float:
        """The chance that a token of this confidence is accepted, where all before it were."""
        knots = self.knots
        at = bisect_left(knots, said, key=lambda knot: knot.said)
        if at == 0:
            return knots[0].found
        if at == len(knots):
            return knots[-1].found
        left, right = knots[at - 1], knots[at]
        share = (said - left.said) / (right.said - left.said)
        return left.found + share * (right.found - left.found)
