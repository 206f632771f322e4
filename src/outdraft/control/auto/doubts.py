"""Arms that never pay after their trials are measured once more: the machine may have been busy when they were tried.

Probes seldom find out, since those of an arm that seems dear are rare (`exploring.py`). So such an arm guesses a few
times more when a new text begins, for all texts of the batch, because costs are those of the whole batch. Data in: what
a plan found of an arm, and measured costs; data out: what each text is to do in its next rounds.
"""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Seq

from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import ArmDepth
from outdraft.core.sequence import Sequence

_DOUBTS = 3  # of an arm, by new texts or batches; more of them, where texts end before all their rounds are made
_FRESH = 2  # rounds of a new text
_LONG = 48  # tokens that a text must still have room for, to win a doubt back
_DOUBTED = (1, 3, 2, 3)  # depths: first it reads what it has missed, then it shows what guesses in a row cost
_DEAR = 0.5  # of a pass: an arm is dear that takes so much for one token and the row of that token
_HOPED = 8.0  # times as cheap as measured: such an arm is doubted if it would then ...
_WELL = 1.1  # ... make so many times plain decoding's tokens a second


class Doubts:
    """Rounds in which arms are measured once more that are far from paying."""

    def __init__(self, num_arms: int) -> None:
        self._left = [_DOUBTS * len(_DOUBTED)] * num_arms  # rounds
        self.due: dict[int, list[ArmDepth]] = {}  # sequence -> what it is to do in its next rounds
        self.now: dict[int, ArmDepth] = {}  # what sequences do so in the round under way: such a guess is made whole
        self.waits = False  # a round fell into a pass that read a prompt, which shows no costs

    def may(
        self,
        seq: Sequence,
        age: int,
        arm: int,
        count: int,
        drafting: Callable[[int], float],
        passing: Callable[[float], float],
        search: Callable[..., tuple[int, float]],
    ) -> bool:
        """Whether a text of so many rounds, one of `count`, that finds an arm far from paying doubts it: the text is
        new and long, guesses seem dear, and that alone may be why.

        drafting, passing: measured seconds, by depth and by rows. search: `best_depth` of such costs.
        """
        if age >= _FRESH or seq.id in self.due or self._left[arm] <= 0 or seq.room <= _LONG or not allowed(seq, 1):
            return False
        plain = passing(count)
        if drafting(1) + passing(2 * count) < (1 + _DEAR) * plain:
            return False
        _, hoped = search(
            draft_cost=lambda depth: drafting(depth) / _HOPED,
            pass_cost=lambda rows: plain + (passing(rows) - plain) / _HOPED,
        )
        return hoped > _WELL * count / plain

    def start(self, arm: int, ids: Collection[int]) -> None:
        """All of these sequences are to try the arm, since costs are those of the whole batch."""
        self.due.update((seq_id, [ArmDepth(arm, depth) for depth in _DOUBTED]) for seq_id in ids)

    def begin(self, ids: Seq[int]) -> bool:
        """A round of these sequences; returns whether some are to do otherwise in it than is planned."""
        asked = [] if self.waits else [i for i in ids if (due := self.due.get(i)) and self._left[due[0].arm] > 0]
        self.now = {seq_id: self.due[seq_id].pop(0) for seq_id in asked}
        return bool(asked)

    def settle(self) -> bool:
        """The round has shown what its guesses cost; returns whether a text has made all that it was to make."""
        self._charge()
        is_over = any(not self.due.get(seq_id, True) for seq_id in self.now)
        self.now = {}
        return is_over

    def put_back(self) -> None:
        """The round has shown nothing, and is to come again; it was paid for all the same."""
        self._charge()
        for seq_id, choice in self.now.items():
            if seq_id in self.due:
                self.due[seq_id].insert(0, choice)
                self.waits = True
        self.now = {}

    def _charge(self) -> None:
        for arm in {choice.arm for choice in self.now.values()}:
            self._left[arm] -= 1

    def drop(self, seq_id: int) -> None:
        self.due.pop(seq_id, None)
