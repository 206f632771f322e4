"""Which texts the arms that listen may leave: those that have hidden states kept in every pass.

    leaves   an arm that is far from paying, where a pass is so short that keeping states shows: it leaves the text,
             until the text ends
    spared   an arm that was as far from paying in the first plans for the last texts of so large a batch, before they
             had shown anything of their own, does not hear of the next one at all
    heard    one text, or batch, in 32 is listened to for a while, whatever the arm has shown on others

Where a pass takes tens of milliseconds nobody leaves. Data in: what a plan found; data out: arms that are to rest.
"""

from collections import deque
from collections.abc import Collection, Mapping

from outdraft.control.auto.sequence import SequenceRecord

_SHOWS = 0.015  # of a pass: listening costs about as much as the policy's own work, and grows with the batch like it
_FAR = 0.9  # of the plan's tokens a second
_EARS = 32  # of so many texts, or batches, one is listened to
_HEARING = 16  # rounds
_IN_A_ROW = 3  # texts that an arm would have left in their first plans, before it is spared one


class Listeners:
    """`arms`: those that listen. Greedy texts and drawn ones are told apart."""

    def __init__(self, arms: Collection[int]) -> None:
        self._arms = frozenset(arms)
        # (arm, whether texts are drawn) -> crowds of the last texts, if it was far from paying in all their first plans
        self._left: dict[tuple[int, bool], deque[int]] = {}

    def spared(self, text: SequenceRecord, crowd: int) -> frozenset[int]:
        """The arms that need not hear of a new text, one of `crowd` that run together."""
        text.crowd = crowd
        if _is_heard(text):
            return frozenset()
        return frozenset(
            arm
            for (arm, is_drawn), crowds in self._left.items()
            if is_drawn == text.is_drawn and len(crowds) == _IN_A_ROW and max(crowds) <= crowd
        )

    def let_go(
        self, text: SequenceRecord, promises: Mapping[int, float], most: float, *, work: float, passing: float,
        is_free: bool,
    ) -> None:  # fmt: skip
        """After a plan: those leave that are far from paying, where their listening shows.

        promises, most: tokens a second of each arm that has not left, and of the plan. work, passing: seconds of the
        policy's own work and of a pass. is_free: the text may be guessed as deep as any, so it tells of others too.
        """
        is_first, text.is_planned = not text.is_planned, True
        used = text.choice.arm if text.choice.depth else None
        for arm in self._arms & promises.keys():
            is_far = arm != used and work >= _SHOWS * passing and promises[arm] <= _FAR * most
            if is_free and (is_first or not is_far):
                self._learn(arm, text, is_far=is_far)
            if is_far and (text.age >= _HEARING or not _is_heard(text)):
                text.resting |= {arm}

    def _learn(self, arm: int, text: SequenceRecord, *, is_far: bool) -> None:
        crowds = self._left.setdefault((arm, text.is_drawn), deque(maxlen=_IN_A_ROW))
        if is_far:
            crowds.append(text.crowd)
        elif crowds and text.crowd >= min(crowds):  # what pays in a small batch need not pay in a larger one
            crowds.clear()


def _is_heard(text: SequenceRecord) -> bool:
    return text.number // text.crowd % _EARS == _EARS - 1
