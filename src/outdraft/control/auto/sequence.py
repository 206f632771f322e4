"""What `auto` knows of one sequence. Data in: records of the arms, then rounds; data out: an outlook on each arm."""

from collections.abc import Sequence as Seq

from outdraft.control.auto.record import Record
from outdraft.control.shared.acceptance import Outlook
from outdraft.control.shared.costs import PLAIN, ArmDepth
from outdraft.core.draft import HostTree
from outdraft.core.sequence import Sequence


class SequenceRecord:
    """One sequence: its acceptance with each arm, what is planned for it, and what watched arms have said."""

    __slots__ = (
        "age", "choice", "crowd", "fixed", "heard", "is_asked", "is_drawn", "is_planned", "outlooks", "resting",
        "watched",
    )  # fmt: skip

    def __init__(self, records: Seq[Record], memory: float, seq: Sequence) -> None:
        settled = seq.settled
        self.age = 0  # rounds
        self.crowd = 1  # texts that run together, as far as was known when it joined
        self.heard: frozenset[int] = frozenset()  # arms that are to hear it for a while, whatever they promise
        self.is_planned = False
        self.is_drawn = not seq.request.params.greedy
        self.resting = settled.resting  # arms that have left it, or were never asked for
        # who guesses and how deep, where the request has decided that
        self.fixed = None if settled.depth is None else ArmDepth(settled.arm or 0, settled.depth)
        self.is_asked = settled.arm is not None or settled.depth is not None  # the request has named one or the other
        self.outlooks = [Outlook(record.hazards[self.is_drawn], memory) for record in records]
        self.choice = PLAIN
        self.watched: dict[int, tuple[int, HostTree]] = {}  # arm -> a depth and what it would have guessed so deep

    def learn(self, choice: ArmDepth, tokens: Seq[int], accepted: int) -> bool:
        """A round that emitted `tokens`; `accepted`: of the guess of the chosen arm.

        Returns whether an arm that was watched would have been right.
        """
        self.age += 1
        was_right = False
        for arm, outlook in enumerate(self.outlooks):
            if choice.depth and arm == choice.arm:
                outlook.add(choice.depth, accepted)
            elif arm in self.watched:
                asked, guess = self.watched[arm]
                right = guess.count_right(tokens[:asked])
                was_right |= right > 0
                outlook.add(min(asked, len(tokens)), right)
            else:
                outlook.miss()
        self.watched = {}
        return was_right

    def doze(self, rounds: int) -> None:
        """So many rounds of which nothing was looked at."""
        self.age += rounds
        for outlook in self.outlooks:
            outlook.miss(rounds)
