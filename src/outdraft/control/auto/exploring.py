"""How `auto` learns what the choices that it does not make are worth.

    watched   an arm whose guesses cost next to nothing: what it would have said (`peek`, which leaves no trace in the
              drafter) is compared with the text that came
    probed    any other, and plain decoding, in turn: one sequence does otherwise for one round, when the likely loss
              has been saved up, and the last probe is some rounds ago
    credit    a share of all time, up to a few passes; what a probe wins or loses against the plan comes on top

So a probe that pays earns credit for the next one, and an arm that never pays is looked at ever less than the saved
time allows. Data in: what the plan is and what rounds cost; data out: one probe, and guesses in the texts' records.
"""

import logging
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from typing import NamedTuple

from outdraft.control.auto.records import ArmRecord, SequenceRecord
from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import PLAIN, ArmDepth, MeasuredCosts
from outdraft.control.shared.speedup import best_depth
from outdraft.core.draft import host_tree
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.options.shown import told

PROBE_DEPTH = 4
_APART = 4  # rounds between two probes, at least
_SAVED = 8.0  # passes of one row that may be saved up for probes
_NEAR = 0.7  # of the plan's tokens a second: plain decoding that is further off needs no probe
_PLAIN = -1  # among the arms
_PATIENCE = 8  # plans after which another probe is prepared, though this one has not been made
_log = logging.getLogger(__name__)
_FREE = 0.02  # passes of one row: a guess that costs less may be made for nothing


class Probe(NamedTuple):
    """What one sequence is to do instead of the plan."""

    seq_id: int
    choice: ArmDepth
    loss: float  # likely seconds lost against the plan


class Probes:
    """The next probe, and the time saved for it. `share`: of all time, for probes."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = 0.0  # seconds
        self._since = 0  # rounds since the last probe
        self._turn = 0
        self._next: Probe | None = None
        self._tries = 0  # how often this turn's probe has been prepared
        self._is_spent = False  # the last one was made, and no other has been prepared

    def take(self) -> Probe | None:
        """The probe that was prepared, if its time has come; it is to be made in this round."""
        probe = self._next
        if probe is None or self._since < _APART or self._credit < probe.loss:
            return None
        self._since, self._next, self._is_spent = 0, None, True
        return probe

    def drop(self, seq_id: int) -> None:
        if self._next is not None and self._next.seq_id == seq_id:
            self._next = None

    def save(self, rounds: int, seconds: float, costs: MeasuredCosts, *, won: float = 0.0) -> None:
        """So many rounds, of so many seconds each, are over. `won`: by the probe among them; below 0, it lost."""
        self._since += rounds
        self._credit += self._share * rounds * seconds
        self._credit += won
        most = _SAVED * costs.passes(1)
        self._credit = max(-most, min(self._credit, most))

    def prepare(
        self,
        seqs: Seq[Sequence],
        texts: Mapping[int, SequenceRecord],
        arms: Seq[ArmRecord],
        costs: MeasuredCosts,
        *,
        rate: float,
        watched: Collection[int],
    ) -> None:
        """Choose what is tried next. `rate`: tokens a second of the plan; `watched`: arms that need no probe."""
        self._tries += 1
        if self._is_spent or self._tries >= _PATIENCE:
            self._turn, self._tries = self._turn + 1, 0
        self._next, self._is_spent = None, False
        cycle, place = divmod(self._turn, len(seqs))
        seq = seqs[place]
        text = texts[seq.id]
        if text.fixed:
            self._tries = _PATIENCE
            return
        used = text.choice
        others = sorted(set(range(len(arms))) - {*watched, *text.resting, used.arm if used.depth else _PLAIN})
        others = [arm for arm in others if arm in text.heard] or others  # who listens for a while alone is asked first
        if used.depth and len(seqs) / costs.passes(len(seqs)) > _NEAR * rate:
            others.append(_PLAIN)
        if not others:
            self._tries = _PATIENCE
            return
        index = others[(cycle + place) % len(others)]  # every sequence meets every arm
        planned = [texts[one.id].choice for one in seqs]
        # the rows of the pass without this sequence's guess
        rows = sum(1 + arms[choice.arm].nodes(choice.depth) for choice in planned) - arms[used.arm].nodes(used.depth)
        if index == _PLAIN:
            tokens, seconds, choice = 1.0, costs.passes(rows), PLAIN
        else:
            survivals = text.outlooks[index].survivals(allowed(seq, PROBE_DEPTH))
            if not survivals:
                self._tries = _PATIENCE
                return
            draft, arm = costs.drafts[index].of(1), arms[index]
            depth, _ = best_depth(survivals, draft_cost=draft, pass_cost=costs.passes, nodes=arm.nodes)
            choice = ArmDepth(index, max(1, depth))
            tokens = 1 + sum(survivals[: choice.depth])
            passing = costs.passes(rows + arm.nodes(choice.depth))
            seconds = draft(choice.depth) + passing + costs.catch_up(seq.id, index)
        usual = 1 + sum(text.outlooks[used.arm].survivals(used.depth))
        drafting = costs.drafts[used.arm](used.depth, 1) if used.depth else 0.0
        before = drafting + costs.passes(rows + arms[used.arm].nodes(used.depth))
        self._next = Probe(seq.id, choice, (seconds - before) - (tokens - usual) / rate)


class Watcher:
    """The arms that can be watched. `limit`: tokens of a guess, at most."""

    def __init__(self, arms: Seq[Arm], limit: int) -> None:
        self._peeks = {index: arm.peek for index, arm in enumerate(arms) if arm.peek is not None}
        self._names = [arm.name for arm in arms]
        self._limit = limit
        self._first = 0  # the sequence that is looked at first

    def free(self, costs: MeasuredCosts) -> dict[int, float]:
        """Arms whose guesses cost next to nothing here, and seconds of a look at what each would say."""
        most, found = _FREE * costs.passes(1), dict[int, float]()
        for index in self._peeks:
            if 0 < (look := costs.drafts[index].quick(PROBE_DEPTH)) < most:
                found[index] = look
        return found

    def watch(
        self,
        seqs: Seq[Sequence],
        chosen: Mapping[int, ArmDepth],
        texts: Mapping[int, SequenceRecord],
        costs: MeasuredCosts,
    ) -> None:
        """What each free arm out of use would say: of a large batch for some, in turn.

        One that raises is watched no longer, for it would raise again and again. Probes find out what it is worth, and
        what it raises in a guess costs the sequence that it was asked about, as with every drafter.
        """
        for seq in seqs if self._peeks else ():
            texts[seq.id].watched = {}  # a mask or full memory may have decided the last round
        for index, look in self.free(costs).items():
            room = int(_FREE * costs.passes(len(seqs)) / look)
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
