"""How `auto` saves work where guessing does not pay: it pauses for some rounds, and stops collecting hidden states.

    nap       plain decoding is planned for everybody: so many rounds without plan, watch and probe that the policy's
              own work, measured in the round before, takes one part in a hundred of the time
    resting   an arm that listens (it has hidden states kept in every pass) and is far from paying, where a pass is so
              short that keeping them shows: it leaves this text, until the text ends

Where a pass takes tens of milliseconds there are neither naps nor resting arms. Data in: seconds; data out: rounds, and
whether an arm is to leave.
"""

from collections import deque
from math import ceil
from statistics import median

_SHARE = 0.01  # of the time that the policy's own work may take
_LONGEST = 24  # rounds of a nap
_UNSEEN = 2.0  # a round's own work is about twice what shows before its pass: learning from it comes after
_SHOWS = 0.015  # of a pass: listening costs about as much as the policy's own work, and grows with the batch like it
_FAR = 0.9  # of the plan's tokens a second
_EARS = 32  # of so many texts, or batches, one is listened to for a while, whatever the arm has shown on others
_HEARING = 16  # rounds


class Nap:
    """How long the policy may look away."""

    def __init__(self) -> None:
        self._work: deque[float] = deque(maxlen=9)  # seconds before the pass, in plain rounds that were planned

    def add(self, seconds: float) -> None:
        """A round in which nobody guessed took so long before its pass."""
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


def leaves(number: int, age: int, *, count: int, work: float, passing: float, promise: float, most: float) -> bool:
    """Whether an arm that listens and is out of use leaves a text.

    number: of the text, counted from 0. age: rounds since it began. count: texts of the batch. work, passing: seconds
    of the policy's own work and of a pass. promise, most: tokens a second of the arm, and of the plan.
    """
    if work < _SHOWS * passing or promise > _FAR * most:
        return False
    return age >= (_HEARING if number // count % _EARS == _EARS - 1 else 0)
