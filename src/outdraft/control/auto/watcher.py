"""Arms out of use whose guesses cost next to nothing: what each would have said is compared with the text that came.

An arm is watched by its `peek`, which leaves no trace in the drafter. Data in: sequences, what is chosen for them, and
costs; data out: guesses, which stand in the sequences' records until their rounds are over.
"""

import logging
from collections.abc import Mapping
from collections.abc import Sequence as Seq

from outdraft.control.auto.probes import PROBE_DEPTH
from outdraft.control.auto.sequence import SequenceRecord
from outdraft.control.shared.costs import ArmDepth, Costs
from outdraft.control.shared.limits import allowed
from outdraft.core.draft import host_tree
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.options.shown import told

_log = logging.getLogger(__name__)
_FREE = 0.02  # passes of one row: a guess that costs less may be made for nothing


class Watcher:
    """The arms that can be watched. `limit`: tokens of a guess, at most."""

    def __init__(self, arms: Seq[Arm], limit: int) -> None:
        self._peeks = {index: arm.peek for index, arm in enumerate(arms) if arm.peek is not None}
        self._names = [arm.name for arm in arms]
        self._limit = limit
        self._first = 0  # the sequence that is looked at first

    def free(self, costs: Costs) -> list[int]:
        """Arms whose guesses cost next to nothing here."""
        most = _FREE * costs.passes(1)
        return [index for index in self._peeks if 0 < _glance(index, costs) < most]

    def watch(
        self, seqs: Seq[Sequence], chosen: Mapping[int, ArmDepth], texts: Mapping[int, SequenceRecord], costs: Costs
    ) -> None:
        """What each free arm out of use would say: of a large batch for some, in turn.

        One that raises is watched no longer, for it would raise again and again. Probes find out what it is worth, and
        what it raises in a guess costs the sequence that it was asked about, as with every drafter.
        """
        share = _FREE * costs.passes(len(seqs))
        for index in self.free(costs):
            room = int(share / _glance(index, costs))
            try:
                for at in range(min(room, len(seqs))):
                    seq = seqs[(self._first + at) % len(seqs)]
                    self._watch_one(index, seq, chosen[seq.id], texts[seq.id])
            except anything_but_an_interrupt() as error:
                del self._peeks[index]
                _log.warning(
                    "arm %s raised %s; it is watched no longer", self._names[index], told(error), exc_info=error
                )
        self._first += 1

    def _watch_one(self, index: int, seq: Sequence, chosen: ArmDepth, text: SequenceRecord) -> None:
        ahead = allowed(seq, self._limit)
        is_used = chosen.depth and chosen.arm == index
        if ahead and not is_used and index not in text.resting:
            guess = self._peeks[index](seq, Budget(depth=ahead, arm=index))
            text.watched[index] = ahead, host_tree(guess)


def _glance(index: int, costs: Costs) -> float:
    """Seconds of a look at what an arm would say: no more than twice its quickest guess, whatever else ran then."""
    usual = costs.drafts[index]
    return min(usual(PROBE_DEPTH, 1), 2 * usual.quickest(1))
