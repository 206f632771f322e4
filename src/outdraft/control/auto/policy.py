"""Choose arm and depth for every sequence by what rounds have cost and brought; plain decoding is one of the choices.

    measured   t_pass(rows), t_draft(arm, depth)         of the engine, `shared/costs.py`
               S_i(sequence, arm)                         survival of a guess, forgetting, `shared/acceptance.py`
    chosen     max (B + sum of S) / (t_draft + t_pass)    tokens a second of the whole batch
    watched    an arm out of use whose guesses cost nothing: what it would have said is compared with the text
    explored   any other with 1 % of the time: it guesses for one round when its likely loss has been saved up
    at rest    where plain decoding is best, most rounds are not looked at, `rest.py`
    kept       costs and rates for the next engine of this model on this machine, `record.py`

A probe that pays earns credit for the next one, so a change of the text is followed at once, and arms that never pay
are looked at ever less than the saved time allows. Data in: sequences and events; data out: one budget each. Times are
read from events alone, so a scripted clock makes it deterministic. A greedy or a seeded text does not depend on what it
decides; a text that is sampled without a seed does, its distribution does not.
"""

import logging
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import ceil
from typing import Any

from outdraft.control.auto.batch import divide_depths
from outdraft.control.auto.record import Record, keep_all, recall_all
from outdraft.control.auto.rest import Nap, leaves
from outdraft.control.auto.sequence import SequenceRecord
from outdraft.control.shared.costs import PLAIN, ArmDepth, Costs
from outdraft.control.shared.limits import allowed
from outdraft.control.shared.speedup import best_depth
from outdraft.core.draft import host_tree
from outdraft.core.events import StepEvent, step_times
from outdraft.core.options import PolicyOptions
from outdraft.core.policy import Arm, Budget
from outdraft.core.ranges import MOST_NODES, check_range
from outdraft.core.sequence import Sequence
from outdraft.core.shown import told

_log = logging.getLogger(__name__)
_PLANNING = 5e-5  # seconds of a plan for one sequence, measured with two arms
_SHARE = 0.01  # of the time that plans may take
_PAUSE = 12  # rounds between two plans, at most
_APART = 4  # rounds between two probes, at least
_FREE = 0.02  # passes of one row: a guess that costs less may be made for nothing
_SAVED = 8.0  # passes of one row that may be saved up for probes
_PROBE_DEPTH = 4
_MARGIN = 1.02  # times plain decoding's tokens a second that a plan must promise: the best of many estimates flatters
_NEAR = 0.7  # of the plan's tokens a second: plain decoding that is further off needs no probe


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoOptions(PolicyOptions):
    """Limits of what it may choose. Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 16  # how many tokens are drafted along the longest path, at most
    memory: float = 32.0  # after how many rounds a round counts only 1/e in the acceptance of its sequence
    exploration: float = 0.01  # what share of the time may be spent on trying choices whose worth is not known

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "memory", least=1)
        check_range(self, "exploration", least=0, most=1)


class AutoPolicy:
    """One for an engine: costs and the arms' acceptance are shared, so a new text begins with what others taught."""

    def __init__(self, options: AutoOptions, arms: Seq[Arm]) -> None:
        self._options = options
        self._peeks = {index: arm.peek for index, arm in enumerate(arms) if arm.peek is not None}
        self._names = [arm.name for arm in arms]
        self._listeners = frozenset(index for index, arm in enumerate(arms) if arm.listens)
        self._arms = [Record(8 * options.memory) for _ in arms]
        self.costs = Costs(len(arms))
        self._texts: dict[int, SequenceRecord] = {}
        self._chosen: dict[int, ArmDepth] = {}  # of the step under way
        self._planned: list[int] = []  # sequences that the plan was made for
        self._until_plan = 0
        self._rate = 0.0  # tokens a second that the plan promises
        self._credit = 0.0  # seconds saved for probes
        self._since_probe = 0
        self._turn = self._first_watched = 0
        self._probe: tuple[int, ArmDepth, float] | None = None  # sequence, what, likely loss in seconds
        self._is_probing = False
        self._has_been_plain = False
        self._nap = Nap()
        self._rounds_left = self._rounds_slept = 0  # of the nap under way
        self._is_asleep = False
        self._num_texts = 0
        self._asleep: list[Budget] = []  # everybody's budgets in a nap

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The plan of the last few rounds, or a new one; cut to what each request allows."""
        limit = self._options.num_speculative_tokens
        if not limit:
            return [Budget(depth=0)] * len(seqs)
        ids = [seq.id for seq in seqs]
        self._is_asleep = self._rounds_left > 0 and ids == self._planned
        if self._is_asleep:
            self._rounds_left -= 1
            self._rounds_slept += 1
            return self._asleep
        self._wake()
        self._until_plan -= 1
        self._is_probing = False
        if (trial := self._trial(seqs)) is not None:
            choices = trial
        else:
            if self._until_plan <= 0 or ids != self._planned:
                self._make_plan(seqs)
            choices = [self._texts[i].choice for i in ids]
            if self._probe is not None and self._since_probe >= _APART and self._credit >= self._probe[2]:
                at = ids.index(self._probe[0])
                choices[at] = self._probe[1]
                self._is_probing, self._since_probe, self._probe = True, 0, None
        budgets = []
        for seq, (arm, depth) in zip(seqs, choices, strict=True):
            depth = allowed(seq, min(depth, limit)) if depth else 0
            self._chosen[seq.id] = ArmDepth(arm, depth)
            budgets.append(Budget(depth=depth, arm=arm, resting=self._texts[seq.id].resting))
        self._watch(seqs)
        return budgets

    def update(self, events: Seq[StepEvent]) -> None:
        """Learn costs and acceptance, and settle what a probe has really lost or won."""
        if self._is_asleep:
            self._is_asleep = False
            return
        seconds = self.costs.add(events, self._chosen)
        tokens, calm = 0, True
        for event in events:
            tokens += len(event.tokens)
            arm, depth = self._chosen.pop(event.seq_id, PLAIN)
            calm &= not depth
            if event.finish_reason is not None or event.seq_id not in self._texts:
                continue
            if depth:
                self._arms[arm].add(depth, event.num_nodes - 1)
            accepted = min(event.num_accepted, depth)
            calm &= not self._texts[event.seq_id].learn(ArmDepth(arm, depth), event.tokens, accepted)
        if any(event.num_certain for event in events):
            return
        self._since_probe += 1
        self._credit += self._options.exploration * seconds
        if self._is_probing:
            self._credit += tokens / self._rate - seconds
            self._until_plan = 0
        self._limit_credit()
        if calm and self._rate:
            self._fall_asleep(events)

    def end(self, seqs: Seq[Sequence]) -> None:
        """Forget the texts; what they taught of the arms stays."""
        for seq in seqs:
            self._texts.pop(seq.id, None)
            self._chosen.pop(seq.id, None)
            self.costs.forget(seq.id)
            if self._probe is not None and self._probe[0] == seq.id:
                self._probe = None

    def keep(self) -> dict[str, Any] | None:
        """What the next engine may begin with: the costs, and how each arm has fared; None before any trial is over."""
        if not self._has_been_plain:
            return None
        return {"costs": self.costs.kept(), "arms": keep_all(dict(zip(self._names, self._arms, strict=True)))}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Begin with what another engine kept; then there are no trials.

        Raises `ValueError`, `KeyError` or `TypeError` for what is none, and has then changed nothing.
        """
        arms = recall_all(kept["arms"], self._names, 8 * self._options.memory)
        self.costs = Costs.recalled(kept["costs"], len(arms))
        self._arms, self._has_been_plain = arms, True

    def _fall_asleep(self, events: Seq[StepEvent]) -> None:
        """Nobody guesses, and no look-up would have been right: look away for as long as that is worth it."""
        if any(self._texts[i].choice.depth for i in self._planned if i in self._texts):
            return
        self._nap.add(step_times(events).draft)
        self._rounds_left = self._nap.rounds(self.costs.passes(len(events)))
        self._asleep = [
            Budget(depth=0, resting=self._texts[i].resting) if i in self._texts else Budget(depth=0)
            for i in self._planned
        ]

    def _wake(self) -> None:
        """The nap is over, or somebody came or went: what was slept through is known to have been plain."""
        slept, self._rounds_slept, self._rounds_left = self._rounds_slept, 0, 0
        if not slept:
            return
        self._since_probe += slept
        self._credit += self._options.exploration * slept * self.costs.passes(len(self._planned))
        self._limit_credit()
        for i in self._planned:
            if i in self._texts:
                self._texts[i].doze(slept)
                self.costs.doze(i, slept)

    def _limit_credit(self) -> None:
        most = _SAVED * self.costs.passes(1)
        self._credit = max(-most, min(self._credit, most))

    def _trial(self, seqs: Seq[Sequence]) -> list[ArmDepth] | None:
        """An arm that has not had its trials, for everybody, so that its costs are its own; then one plain pass."""
        for seq in seqs:
            if seq.id not in self._texts:
                self._texts[seq.id] = SequenceRecord(self._arms, self._options.memory, self._num_texts)
                self._num_texts += 1
        for index, arm in enumerate(self._arms):
            if (depth := arm.trial) is None:
                continue
            if max(allowed(seq, depth) for seq in seqs) == depth:
                arm.num_tried += 1
                return [ArmDepth(index, depth)] * len(seqs)
        if not self._has_been_plain:
            self._has_been_plain = True
            return [PLAIN] * len(seqs)
        return None

    def _make_plan(self, seqs: Seq[Sequence]) -> None:
        """Each sequence's arm as if all did alike; then the depths of all together."""
        self._planned = [seq.id for seq in seqs]
        limit, count = self._options.num_speculative_tokens, len(seqs)
        passes = self.costs.passes
        plain = count / passes(count)
        survivals = []
        for seq in seqs:
            text, deepest = self._texts[seq.id], allowed(seq, limit)
            best, most, alive = PLAIN, _MARGIN * plain, [0.0]
            promises = {}
            for index, arm in enumerate(self._arms):
                if index in text.resting:
                    continue
                own = text.outlooks[index].survivals(deepest)
                depth, rate = best_depth(
                    own, draft_cost=self.costs.drafts[index], pass_cost=passes, nodes=arm.nodes, count=count
                )
                promises[index] = rate if depth else 0.0
                if rate > most:
                    best, most, alive = ArmDepth(index, depth), rate, own
            text.choice = best
            survivals.append(alive)
            self._let_go(text, promises, most, count)
        if not best.depth:
            most = plain
        if count > 1:
            most = self._divide(seqs, survivals)
        self._rate = most
        self._until_plan = min(_PAUSE, ceil(count * _PLANNING / (_SHARE * passes(count))))
        self._prepare_probe(seqs)

    def _let_go(self, text: SequenceRecord, promises: Mapping[int, float], most: float, count: int) -> None:
        """Listeners that are far from paying leave the text where listening shows."""
        for index in (self._listeners & promises.keys()) - {text.choice.arm if text.choice.depth else -1}:
            if leaves(
                text.number, text.age, count=count, work=self._nap.work, passing=self.costs.passes(count),
                promise=promises[index], most=most,
            ):  # fmt: skip
                text.resting |= {index}

    def _divide(self, seqs: Seq[Sequence], survivals: Seq[Seq[float]]) -> float:
        """The depths that make most tokens a second of the whole batch; returns how many those are."""
        arms = [self._texts[seq.id].choice.arm for seq in seqs]
        depths, rate = divide_depths(
            survivals,
            arms,
            draft_costs=self.costs.drafts,
            pass_cost=self.costs.passes,
            nodes=[self._arms[arm].nodes for arm in arms],
        )
        plain = len(seqs) / self.costs.passes(len(seqs))
        if rate < _MARGIN * plain:
            depths, rate = [0] * len(seqs), plain
        for seq, arm, depth in zip(seqs, arms, depths, strict=True):
            self._texts[seq.id].choice = ArmDepth(arm, depth)
        return rate

    def _watch(self, seqs: Seq[Sequence]) -> None:
        """What each free arm out of use would say, to be compared with the text: of a large batch some, in turn.

        One that raises is watched no longer, for it would raise again and again. Probes find out what it is worth, and
        what it raises in a guess costs the sequence that it was asked about, as with every drafter.
        """
        share = _FREE * self.costs.passes(len(seqs))
        for index in self._free():
            room = int(share / self._glance(index))
            try:
                for at in range(min(room, len(seqs))):
                    self._watch_one(index, seqs[(self._first_watched + at) % len(seqs)])
            except Exception as error:
                del self._peeks[index]
                _log.warning(
                    "arm %s raised %s; it is watched no longer", self._names[index], told(error), exc_info=error
                )
        self._first_watched += 1

    def _watch_one(self, index: int, seq: Sequence) -> None:
        arm, depth = self._chosen[seq.id]
        ahead = allowed(seq, self._options.num_speculative_tokens)
        if ahead and (not depth or arm != index):
            guess = self._peeks[index](seq, Budget(depth=ahead, arm=index))
            self._texts[seq.id].watched[index] = ahead, host_tree(guess)

    def _free(self) -> list[int]:
        """Arms whose guesses cost next to nothing here."""
        most = _FREE * self.costs.passes(1)
        return [index for index in self._peeks if 0 < self._glance(index) < most]

    def _glance(self, index: int) -> float:
        """Seconds of a look at what an arm would say: no more than twice its quickest guess, whatever else ran then."""
        usual = self.costs.drafts[index]
        return min(usual(_PROBE_DEPTH), 2 * usual.quickest)

    def _prepare_probe(self, seqs: Seq[Sequence]) -> None:
        """In turn, each arm that is out of use and unwatched, and plain decoding; for each sequence in turn."""
        self._turn += 1
        seq = seqs[self._turn % len(seqs)]
        text = self._texts[seq.id]
        used, free = text.choice, self._free()
        idle = set(range(len(self._arms))) - {*free, *text.resting, used.arm if used.depth else -1}
        others = sorted(idle)
        if used.depth and len(seqs) / self.costs.passes(len(seqs)) > _NEAR * self._rate:
            others.append(-1)
        if not others:
            self._probe = None
            return
        index = others[self._turn % len(others)]
        rows = sum(1 + self._arms[t.choice.arm].nodes(t.choice.depth) for t in (self._texts[s.id] for s in seqs))
        rows -= self._arms[used.arm].nodes(used.depth)
        if index < 0:
            tokens, seconds, choice = 1.0, self.costs.passes(rows), PLAIN
        else:
            survivals = text.outlooks[index].survivals(allowed(seq, _PROBE_DEPTH))
            draft, arm = self.costs.drafts[index], self._arms[index]
            alone = self.costs.passes
            depth, _ = best_depth(survivals, draft_cost=draft, pass_cost=alone, nodes=arm.nodes)
            depth = max(1, depth)
            if not survivals:
                self._probe = None
                return
            choice = ArmDepth(index, depth)
            tokens = 1 + sum(survivals[:depth])
            seconds = draft(depth) + alone(rows + arm.nodes(depth)) + self.costs.catch_up(seq.id, index)
        usual = 1 + sum(text.outlooks[used.arm].survivals(used.depth))
        passing = self.costs.drafts[used.arm](used.depth) if used.depth else 0.0
        before = passing + self.costs.passes(rows + self._arms[used.arm].nodes(used.depth))
        self._probe = (seq.id, choice, (seconds - before) - (tokens - usual) / self._rate)


def build(options: AutoOptions, arms: Seq[Arm]) -> AutoPolicy:
    """One arm for each drafter to choose among."""
    return AutoPolicy(options, arms)
