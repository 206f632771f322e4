"""The first rounds of each arm, from which its costs are learned; then one plain pass.

An arm is tried by all texts at once, so that the costs are its own, and one that is dear in fewer rounds. A trial that
fell into a pass which read a prompt has shown no costs: it is made again, once a pass has read none, and until then all
texts decode plainly. Data in: texts, and what is known of arms and costs; data out: what each text is to do.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from outdraft.control.auto.records import ArmRecord, SequenceRecord
from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import PLAIN, ArmDepth, MeasuredCosts
from outdraft.core.sequence import Sequence

TRIALS = (4, 2, 3, 4, 2, 5)  # depths
_FEWEST = 3  # of them, for an arm that is dear


class Trials:
    """Of all arms of an engine."""

    def __init__(self) -> None:
        self.now: int | None = None  # the arm whose trial the round under way is
        self.has_been_plain = False  # what a plain pass costs is known
        self._waits = False  # the last trial is to be made again

    def choose(
        self, seqs: Seq[Sequence], texts: Mapping[int, SequenceRecord], arms: Seq[ArmRecord], costs: MeasuredCosts
    ) -> list[ArmDepth] | None:
        """The next trial; None where all have been made, or none can be made now."""
        self.now = None
        for index, arm in enumerate(arms):
            if arm.num_tried == len(TRIALS) or self._waits or costs.is_settling:
                continue
            depth = TRIALS[arm.num_tried]
            may = [index not in texts[seq.id].resting for seq in seqs]
            if max((allowed(seq, depth) for seq, one in zip(seqs, may, strict=True) if one), default=0) == depth:
                self.now = index
                return [ArmDepth(index, depth) if one else PLAIN for one in may]
        if self._waits or not self.has_been_plain:
            return [PLAIN] * len(seqs)
        return None

    def put_back(self) -> None:
        """The pass has read a prompt."""
        self._waits |= self.now is not None
        self.now = None

    def settle(self, arms: Seq[ArmRecord], costs: MeasuredCosts) -> None:
        """The pass has shown what it cost."""
        index, self.now, self._waits = self.now, None, False
        if index is None:
            self.has_been_plain = self.has_been_plain or costs.passes.is_measured
            return
        arm, draft = arms[index], costs.drafts[index]
        is_dear = arm.num_tried + 1 >= _FEWEST and 2 * draft(1) > costs.passes(1)
        arm.num_tried = len(TRIALS) if is_dear else arm.num_tried + 1
