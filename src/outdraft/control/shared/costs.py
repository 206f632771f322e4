"""What a step costs, measured from its events: a target pass by its rows, drafting by arm and depth.

A drafter that sat out has to catch up with the text first (a draft model reads what it has not seen); such rounds do
not count as its drafting, they tell the price of a missed token. Times belong to the whole batch: a pass is known by
the rows of all. Data in: the events of one step, and who guessed for whom how deep; data out: seconds.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import NamedTuple

from outdraft.control.shared.curve import Curve
from outdraft.core.events import StepEvent, step_times

_MANY = 16  # missed tokens from which their price can be told from noise
_USUAL = 1.25  # times the usual drafting that count as usual


class ArmDepth(NamedTuple):
    """What a policy chose for one sequence."""

    arm: int
    depth: int


PLAIN = ArmDepth(0, 0)


class Costs:
    """One engine's costs, shared by its sequences."""

    def __init__(self, num_arms: int) -> None:
        self.passes = Curve(0.98, 0.02)  # of rows: nearly flat, until measured
        self.drafts = [Curve(0.1, 0.9) for _ in range(num_arms)]  # of depth: nearly proportional
        self._missed: list[float] = [0.0] * num_arms  # seconds for each token that the arm has not seen
        self._behind: dict[int, list[int]] = {}  # sequence -> tokens since each arm's last guess

    def add(self, events: Seq[StepEvent], chosen: Mapping[int, ArmDepth]) -> float:
        """Learn from one step; returns its seconds. `chosen`: by sequence, what was planned for this step."""
        times = step_times(events)
        drafting, passing = times.draft, times.target + times.rest
        if any(event.num_certain for event in events):
            for event in events:
                self._miss(event.seq_id, event.num_certain + len(event.tokens))
            return drafting + passing
        self.passes.add(sum(event.num_nodes for event in events), passing)
        deepest: dict[int, int] = {}
        missed = 0
        for event in events:
            arm, depth = chosen.get(event.seq_id, PLAIN)
            behind = self._miss(event.seq_id, 0)
            if depth:
                deepest[arm] = max(deepest.get(arm, 0), depth)
                missed += behind[arm]
                behind[arm] = 0
            for other in range(len(behind)):
                if not depth or other != arm:
                    behind[other] += len(event.tokens)
        self._share(drafting, deepest, missed)
        return drafting + passing

    def catch_up(self, seq: int, arm: int) -> float:
        """Seconds that an arm would need before it can guess for a sequence."""
        behind = self._behind.get(seq)
        return self._missed[arm] * behind[arm] if behind else 0.0

    def forget(self, seq: int) -> None:
        self._behind.pop(seq, None)

    def _miss(self, seq: int, count: int) -> list[int]:
        behind = self._behind.get(seq)
        if behind is None:
            behind = self._behind[seq] = [0] * len(self.drafts)
        if count:
            behind[:] = [before + count for before in behind]
        return behind

    def _share(self, seconds: float, deepest: Mapping[int, int], missed: int) -> None:
        """Whose the drafting was: the arm's that guessed; of several, as what is known of them divides it."""
        if not deepest:
            return
        known = {arm: self.drafts[arm](depth) for arm, depth in deepest.items()}
        if missed:
            if len(known) == 1:
                ((arm, usual),) = known.items()
                if usual and missed >= _MANY:
                    per_token = max(0.0, seconds - _USUAL * usual) / missed
                    before = self._missed[arm]
                    self._missed[arm] = before + 0.3 * (per_token - before) if before else per_token
            return
        whole = sum(known.values())
        for arm, depth in deepest.items():
            if len(deepest) == 1:
                self.drafts[arm].add(depth, seconds)
            elif whole and known[arm]:
                self.drafts[arm].add(depth, seconds * known[arm] / whole)
