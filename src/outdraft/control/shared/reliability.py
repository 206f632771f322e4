"""Fit a calibration as tokens are judged.

Shares of acceptance by confidence are made to rise by pooling neighbours: isotonic regression by pooling adjacent
violators (Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability estimates", 2002,
https://doi.org/10.1145/775047.775151), over bins of equal width in the log odds of the confidence, so that 0.99 and
0.999 are told apart. Every bin leans on what the drafter says until tokens have been seen, and forgets.
Data in: (confidence, accepted); data out: a `Calibration`.
"""

from math import exp, log

from outdraft.core.calibration import Calibration, Knot

_WIDTH = 0.5  # of a bin, in log odds
_REACH = 7.0  # log odds of the outermost bins' edges
_BINS = round(2 * _REACH / _WIDTH)
_FORGOTTEN = 1e-3  # tokens of a bin that are forgotten, or never were seen
_LEAN = 2.0  # tokens that the drafter's own word weighs in each bin
UNFITTED = Calibration((Knot(0.0, 0.0), Knot(1.0, 1.0)))


class Reliability:
    """How often tokens of each confidence were accepted. `memory`: judged tokens after which one counts 1/e."""

    def __init__(self, memory: float) -> None:
        self._keep = exp(-1 / memory)
        self._said = [0.0] * _BINS  # sum of the confidences
        self._accepted = [0.0] * _BINS
        self._count = [0.0] * _BINS

    def add(self, said: float, accepted: bool) -> None:
        """One judged token. A rejected guess's later tokens are not judged, and must not come here."""
        at = _bin_of(said)
        for sums in (self._said, self._accepted, self._count):
            sums[:] = [value * self._keep for value in sums]
        self._said[at] += said
        self._accepted[at] += accepted
        self._count[at] += 1

    @property
    def mean(self) -> float:
        """Share of all judged tokens that were accepted, one of either kind added."""
        return (sum(self._accepted) + 1) / (sum(self._count) + 2)

    def fit(self) -> Calibration:
        """The calibration of all tokens judged so far: bins are pooled until none falls (isotonic regression)."""
        pools: list[tuple[float, float, float]] = []  # (weight, accepted, bins pooled), each share above the last one's
        said = []
        for total, accepted, count in zip(self._said, self._accepted, self._count, strict=True):
            if count < _FORGOTTEN:
                continue
            said.append(total / count)
            pools.append((count + _LEAN, accepted + _LEAN * said[-1], 1))
            while len(pools) > 1 and pools[-2][1] * pools[-1][0] >= pools[-1][1] * pools[-2][0]:
                last, before = pools.pop(), pools.pop()
                pools.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
        found = [accepted / weight for weight, accepted, bins in pools for _ in range(int(bins))]
        if not said:
            return UNFITTED
        return Calibration(tuple(Knot(min(x, 1.0), min(share, 1.0)) for x, share in zip(said, found, strict=True)))


def _bin_of(said: float) -> int:
    inside = min(max(said, 1e-9), 1 - 1e-9)
    return min(max(int((log(inside / (1 - inside)) + _REACH) // _WIDTH), 0), _BINS - 1)
