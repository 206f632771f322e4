"""How `auto` saves work where guessing does not pay: it looks away for some rounds.

Plain decoding is planned for all texts: so many rounds without plan, watch and probe that the policy's own work,
measured in the round before, takes one part in a hundred of the time. Where a pass takes tens of milliseconds there are
no naps. Data in: seconds; data out: rounds.
"""

from collections import deque
from math import ceil
from statistics import median

_SHARE = 0.01  # of the time that the policy's own work may take
_LONGEST = 24  # rounds of a nap
_UNSEEN = 2.0  # a round's own work is about twice what shows before its pass: learning from it comes after


class Nap:
    """How long the policy may look away."""

    def __init__(self) -> None:
        self._work: deque[float] = deque(maxlen=9)  # seconds before the pass, in plain rounds that were planned

    def add(self, seconds: float) -> None:
        """A round in which no drafter guessed took so long before its pass."""
        self._work.append(seconds)

    @property
    def work(self) -> float:
        """Seconds of the policy's own work before a pass; 0 until a round was plain."""
        return median(self._work) if self._work else 0.0

    def rounds(self, passing: float) -> int:
        """Rounds to look away; `passing`: seconds of a round. Where the work does not show, none."""
        if passing <= 0:
            return 0
        return min(_LONGEST, max(0, ceil(_UNSEEN * self.work / (_SHARE * passing)) - 1))
