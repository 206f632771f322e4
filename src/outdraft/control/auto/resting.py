"""How `auto` saves work where guessing does not pay: it looks away for some rounds, and arms leave texts.

    nap      plain decoding is planned for all texts: so many rounds without plan, watch and probe that the policy's
             own work, measured in the round before, takes one part in a hundred of the time
    leaves   an arm that has hidden states kept in every pass and is far from paying, where a pass is so short that
             keeping them shows: it leaves the text, until the text ends
    spared   an arm that was as far from paying in three texts in a row, and near to it in none of their plans, does
             not hear of the next one at all, if as many texts run together then
    heard    after 7 texts, or batches, that it has left or was spared, it hears one until the text has 16 rounds

Where a pass takes tens of milliseconds there are no naps, and no arm leaves. Data in: seconds, and what a plan found;
data out: rounds, and arms that are to rest.
"""

from collections import deque
from collections.abc import Collection, Mapping
from math import ceil
from statistics import median

from outdraft.control.auto.records import SequenceRecord
from outdraft.core.policy import Budget

_SHARE = 0.01  # of the time that the policy's own work may take
_LONGEST = 24  # rounds of a nap
_UNSEEN = 2.0  # a round's own work is about twice what shows before its pass: learning from it comes after
_SHOWS = 0.005  # of a pass: listening costs about as much as the policy's own work, and grows with the batch like it
FAR = 0.95  # of plain decoding's tokens a second
_IN_A_ROW = 3  # texts
_QUIET = 7  # texts, or batches
_HEARING = 16  # rounds


class Nap:
    """How long the policy may look away, and the nap under way."""

    def __init__(self) -> None:
        self._work: deque[float] = deque(maxlen=9)  # seconds before the pass, in plain rounds that were planned
        self._ids: list[int] = []  # sequences that the nap was begun with
        self._budgets: list[Budget] = []  # theirs
        self.num_slept = 0  # rounds of it
        self.rounds_left = 0
        self.is_asleep = False  # in the round under way

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

    def begin(self, ids: list[int], budgets: list[Budget], passing: float) -> None:
        """Look away from these sequences, which decode plainly."""
        self._ids, self._budgets, self.rounds_left = ids, budgets, self.rounds(passing)

    def go_on(self, ids: list[int]) -> list[Budget] | None:
        """The budgets of one round more; None: the nap is over, or the sequences are others."""
        self.is_asleep = self.rounds_left > 0 and ids == self._ids
        if not self.is_asleep:
            self.rounds_left = 0
            return None
        self.rounds_left -= 1
        self.num_slept += 1
        return self._budgets

    def end(self) -> int:
        """Look again; returns how many rounds were slept through."""
        slept, self.num_slept, self.rounds_left, self.is_asleep = self.num_slept, 0, 0, False
        return slept


class _Ear:
    """One arm, and greedy texts or drawn ones."""

    def __init__(self) -> None:
        self.crowds: deque[int] = deque(maxlen=_IN_A_ROW)  # of the last texts, if it was far from paying for all
        self.num_quiet = 0  # texts that it has left or was spared since it heard one out

    def is_spared(self, crowd: int) -> bool:
        return len(self.crowds) == _IN_A_ROW and max(self.crowds) <= crowd


class Listeners:
    """`arms`: those that listen."""

    def __init__(self, arms: Collection[int]) -> None:
        self._ears = {(arm, is_drawn): _Ear() for arm in arms for is_drawn in (False, True)}
        self.arms = frozenset(arms)

    def meet(self, text: SequenceRecord, crowd: int) -> None:
        """A new text, one of `crowd` that run together: some arms may have to hear it, whatever they promise."""
        text.crowd = crowd
        text.heard = frozenset(arm for arm in self.arms if self._ears[arm, text.is_drawn].num_quiet >= _QUIET * crowd)

    def spare(self, text: SequenceRecord) -> None:
        """Before its prompt is read: arms that need not hear of it rest."""
        for arm in self.arms - text.heard - text.resting:
            if (ear := self._ears[arm, text.is_drawn]).is_spared(text.crowd):
                text.resting |= {arm}
                ear.num_quiet += 1

    def let_go(
        self,
        text: SequenceRecord,
        promises: Mapping[int, float],
        plain: float,
        *,
        work: float,
        passing: float,
        deepest: int,
        limit: int,
    ) -> None:
        """After a plan: those leave that are far from paying, where their listening shows.

        promises, plain: tokens a second of each arm that has not left, and of plain decoding. work, passing: seconds
        of the policy's own work and of a pass. deepest, limit: tokens of a guess, of this text now and of any; a text
        that may be guessed less deep than others says nothing against an arm.
        """
        used = text.choice.arm if text.choice.depth else None
        for arm in self.arms & promises.keys():
            ear = self._ears[arm, text.is_drawn]
            is_near = arm == used or promises[arm] > FAR * plain
            if is_near:
                text.counted |= {arm}
            if is_near or work < _SHOWS * passing:
                if ear.crowds and text.crowd >= min(ear.crowds):  # what pays in a small batch may not in a larger one
                    ear.crowds.clear()
                continue
            if arm not in text.counted and deepest == limit:
                ear.crowds.append(text.crowd)
            text.counted |= {arm}
            if arm not in text.heard:
                text.resting |= {arm}
                ear.num_quiet += 1
            elif text.age >= _HEARING and deepest:
                text.resting |= {arm}
                ear.num_quiet = 0
