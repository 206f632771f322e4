"""Which texts the arms that listen may leave: those that have hidden states kept in every pass.

    leaves   an arm that is far from paying, where a pass is so short that keeping states shows: it leaves the text,
             until the text ends
    spared   what left earlier texts of so large a batch does not hear of the next one at all
    heard    one text, or batch, in 32 is listened to for a while, whatever the arm has shown on others

Where a pass takes tens of milliseconds nobody leaves. Data in: what a plan found; data out: arms that are to rest.
"""

from collections.abc import Collection, Mapping

from outdraft.control.auto.sequence import SequenceRecord

_SHOWS = 0.015  # of a pass: listening costs about as much as the policy's own work, and grows with the batch like it
_FAR = 0.9  # of the plan's tokens a second
_EARS = 32  # of so many texts, or batches, one is listened to
_HEARING = 16  # rounds


class Listeners:
    """`arms`: those that listen. Greedy texts and drawn ones are told apart."""

    def __init__(self, arms: Collection[int]) -> None:
        self._arms = frozenset(arms)
        self._least: dict[tuple[int, bool], int] = {}  # (arm, whether texts are drawn) -> texts of a batch it leaves

    def spared(self, text: SequenceRecord, count: int) -> frozenset[int]:
        """The arms that need not hear of a new text where `count` run together."""
        if _is_heard(text, count):
            return frozenset()
        return frozenset(
            arm for (arm, drawn), least in self._least.items() if drawn == text.is_drawn and least <= count
        )

    def let_go(
        self,
        text: SequenceRecord,
        promises: Mapping[int, float],
        most: float,
        *,
        count: int,
        work: float,
        passing: float,
    ) -> None:
        """After a plan for `count` texts: those leave that are far from paying, where their listening shows.

        promises, most: tokens a second of each arm that has not left, and of the plan. work, passing: seconds of the
        policy's own work and of a pass.
        """
        used = text.choice.arm if text.choice.depth else None
        for arm in self._arms & promises.keys():
            is_far = arm != used and work >= _SHOWS * passing and promises[arm] <= _FAR * most
            self._learn((arm, text.is_drawn), count, is_far=is_far)
            if is_far and (text.age >= _HEARING or not _is_heard(text, count)):
                text.resting |= {arm}

    def _learn(self, sort: tuple[int, bool], count: int, *, is_far: bool) -> None:
        least = self._least.get(sort)
        if is_far:
            self._least[sort] = count if least is None else min(least, count)
        elif least is not None and count >= least:
            self._least[sort] = count + 1


def _is_heard(text: SequenceRecord, count: int) -> bool:
    return text.number // count % _EARS == _EARS - 1
