"""What a step costs, measured from its events: a target pass by its rows, drafting by arm and depth.

A drafter that sat out has to catch up with the text first (a draft model reads what it has not seen); such rounds do
not count as its drafting, they show the price of a missed token. Times belong to the whole batch: a pass is known by
the rows of all, drafting by the deepest guess and by how many sequences it was for. Where several arms guessed in one
step, what it took more or less than was known of them is laid to those that are known least. Data in: the events of one
step, and who guessed for whom how deep; data out: seconds.
"""

from collections import Counter, deque
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from statistics import median
from typing import Any, NamedTuple

from outdraft.control.shared.curve import CostCurve, DraftCost, read_number
from outdraft.core.events import StepEvent, step_times
from outdraft.core.policy import Arm

_MANY = 16  # missed tokens from which their price stands out from noise
_USUAL = 1.25  # times the usual drafting that count as usual
_OWN = 0.1  # of the time before a pass: at least so much is the guess
_SETTLING = 3  # rounds that show how much slower or quicker the machine is than when costs were kept


class ArmDepth(NamedTuple):
    """What a policy chose for one sequence."""

    arm: int
    depth: int


PLAIN = ArmDepth(0, 0)


class _Behind:
    """What the arms have not seen of one text."""

    __slots__ = ("num_tokens", "seen")

    def __init__(self, num_arms: int) -> None:
        self.num_tokens = 0  # since it began
        self.seen = [0] * num_arms  # how many there were after each arm's last guess

    def missed(self, arm: int) -> int:
        return self.num_tokens - self.seen[arm]


class MeasuredCosts:
    """One engine's costs, shared by its sequences. `arms`: those that may guess."""

    def __init__(self, arms: Seq[Arm]) -> None:
        self.passes = CostCurve(0.98, 0.02)  # of rows: nearly flat, until measured
        self.drafts = [DraftCost(is_flat=arm.one_pass) for arm in arms]
        self._missed = [0.0 for _ in arms]  # seconds for each token that the arm has not seen
        self._first = [0.0 for _ in arms]  # the same with the guess in it, which is all that is known of some arms
        self._behind: dict[int, _Behind] = {}  # by sequence
        self._idle = deque[float](maxlen=9)  # seconds before the pass of rounds in which no arm guessed
        self._settling: list[float] | None = None  # passes over what was kept of them; None: nothing is to be settled

    def kept(self) -> dict[str, Any]:
        """What is worth remembering of it, as plain data."""
        return {"passes": self.passes.kept(), "drafts": [cost.kept() for cost in self.drafts], "missed": self._missed}

    @classmethod
    def recalled(cls, kept: Mapping[str, Any], arms: Seq[Arm]) -> "MeasuredCosts":
        """As it was kept; the first rounds then scale all of it to the speed of the machine now.

        An arm that had never guessed has no costs yet. Raises `ValueError`, `KeyError` or `TypeError` for what is none.
        """
        made = cls(arms)
        made.passes.recall(kept["passes"])
        made._missed = [read_number(each, "price in seconds", most=1e6) for each in kept["missed"]]
        if not len(made._missed) == len(kept["drafts"]) == len(arms):
            raise ValueError(f"{len(made._missed)} prices and {len(kept['drafts'])} costs for {len(arms)} arms")
        told = zip(arms, kept["drafts"], strict=True)
        made.drafts = [DraftCost.recalled(each, is_flat=arm.one_pass) for arm, each in told]
        made._settling = []
        return made

    def add(self, events: Seq[StepEvent], chosen: Mapping[int, ArmDepth]) -> float:
        """Learn from one step; returns its seconds. `chosen`: by sequence, what was planned for this step."""
        times = step_times(events)
        drafting, passing = times.draft, times.target + times.rest
        deepest: dict[int, int] = {}
        crowds: Counter[int] = Counter()
        rows = num_certain = missed = 0
        for event in events:
            text, (arm, depth) = self._text(event.seq_id), chosen.get(event.seq_id, PLAIN)
            rows, num_certain = rows + event.num_nodes, num_certain + event.num_certain
            if depth:
                deepest[arm] = max(deepest.get(arm, 0), depth)
                crowds[arm] += 1
                missed += text.missed(arm)
            text.num_tokens += event.num_certain + len(event.tokens)
            if depth:
                text.seen[arm] = text.num_tokens
        if not num_certain:  # a pass that reads a prompt shows no costs
            self._learn_pass(rows, passing)
            if self._settling is None or not deepest:  # a guess before would be scaled with what was kept
                self._share(drafting, deepest, crowds, missed)
        return drafting + passing

    def _learn_pass(self, rows: int, seconds: float) -> None:
        if self._settling is None:
            self.passes.add(rows, seconds)
            return
        if seconds > 0:
            self._settling.append(seconds / self.passes(rows))
        if len(self._settling) == _SETTLING:
            factor = median(self._settling)
            self.passes.scale(factor)
            for cost in self.drafts:
                cost.scale(factor)
            self._missed = [price * factor for price in self._missed]
            self._settling = None

    @property
    def is_settling(self) -> bool:
        """Whether costs that were kept are not yet scaled to the speed of the machine now: guesses teach nothing."""
        return self._settling is not None

    def plain(self, num_texts: int) -> float | None:
        """Seconds of a pass over so many texts without a guess; None until one was measured at the present speed."""
        return self.passes(num_texts) if self._settling is None and self.passes.has(num_texts) else None

    def catch_up(self, seq: int, arm: int) -> float:
        """Seconds that an arm would need before it can guess for a sequence."""
        text, price = self._behind.get(seq), self._missed[arm] or self._first[arm]
        return price * text.missed(arm) if price and text is not None else 0.0

    def doze(self, seq: int, tokens: int) -> None:
        """So many tokens came, or were read, while the policy did not look."""
        self._text(seq).num_tokens += tokens

    def forget(self, seq: int) -> None:
        self._behind.pop(seq, None)

    def _text(self, seq: int) -> _Behind:
        text = self._behind.get(seq)
        if text is None:
            text = self._behind[seq] = _Behind(len(self.drafts))
        return text

    def _share(self, seconds: float, deepest: Mapping[int, int], crowds: Mapping[int, int], missed: int) -> None:
        """Whose the drafting was: the arm's that guessed; of several, as what is known of them says, and how well."""
        if not deepest:
            self._idle.append(seconds)
            return
        if self._idle:  # what is done before every pass is no arm's
            seconds = max(seconds - min(self._idle), _OWN * seconds)
        if len(deepest) == 1:
            ((arm, depth),) = deepest.items()
            usual = self.drafts[arm](depth, crowds[arm])
            if not missed:
                self.drafts[arm].add(depth, seconds, crowds[arm])
                self._first[arm] = 0.0
            elif not usual:
                self._first[arm] = seconds / missed
            elif missed >= _MANY:
                per_token = max(0.0, seconds - _USUAL * usual) / missed
                before = self._missed[arm]
                self._missed[arm] = before + 0.3 * (per_token - before) if before else per_token
            return
        known = {arm: self.drafts[arm](depth, crowds[arm]) for arm, depth in deepest.items()}
        if missed or not (whole := sum(known.values())):
            return
        doubt = {  # an arm that was never measured may have taken all of it
            arm: (known[arm] or seconds) / (1 + self.drafts[arm].count(depth, crowds[arm]))
            for arm, depth in deepest.items()
        }
        beyond = (seconds - whole) / sum(doubt.values())
        parts = {arm: max(0.0, known[arm] + beyond * doubt[arm]) for arm in deepest}
        share = seconds / (sum(parts.values()) or 1.0)  # 1, unless less than nothing was left for some
        for arm, depth in deepest.items():
            self.drafts[arm].add(depth, share * parts[arm], crowds[arm])
            self._first[arm] = 0.0
