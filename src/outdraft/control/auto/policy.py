"""Choose arm and depth for every sequence by what rounds have cost and brought; plain decoding is one of the choices.

    measured   t_pass(rows), t_draft(arm, depth)         of the engine, `shared/costs.py`
               S_i(sequence, arm)                         survival of a guess, forgetting, `shared/acceptance.py`
    chosen     max (B + sum of S) / (t_draft + t_pass)    tokens a second of the whole batch
    explored   what the other choices are worth: guesses that cost nothing are compared with the text, any other guess
               is made for one round in 1 % of the time, `exploring.py`
    tried      each arm in its first rounds, which show what it costs, `trials.py`
    doubted    costs of an arm that seems too dear are measured again when a new text begins, `doubts.py`
    ended      a guess ends where its next token no longer pays, if its drafter knows at no cost, `gate.py`
    at rest    where plain decoding is best, most rounds are not looked at, and arms that need hidden states leave
               texts, `resting.py`
    kept       costs and rates for the next engine of this model on this machine, `records.py`

Data in: sequences and events; data out: one budget each. Times are read from events alone, so a scripted clock makes it
deterministic. A greedy or a seeded text does not depend on what it decides; a text that is sampled without a seed does,
its distribution does not.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from math import ceil
from typing import Any

from outdraft.control.auto.doubts import Doubts
from outdraft.control.auto.exploring import Probe, Probes, Watcher
from outdraft.control.auto.gate import ended_costs, least_survival
from outdraft.control.auto.records import ArmRecord, SequenceRecord, recall_all
from outdraft.control.auto.resting import FAR, Listeners, Nap
from outdraft.control.auto.trials import Trials
from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import PLAIN, ArmDepth, MeasuredCosts
from outdraft.control.shared.speedup import best_depth, divide_depths
from outdraft.core.events import StepEvent, step_times
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range

_NO_ARM: frozenset[int] = frozenset()
_PLANNING = 3e-5  # seconds of a plan for one sequence and arm
_SHARE = 0.01  # of the time that plans may take
_PAUSE = 12  # rounds between two plans, at most
_MARGIN = 1.02  # times plain decoding's tokens a second that a plan must promise: the best of many estimates flatters


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
        self._facts = tuple(arms)
        self._listeners = Listeners([index for index, arm in enumerate(arms) if arm.listens])
        self._ends_early = [arm.ends_early for arm in arms]
        self._survival: dict[int, float] = {}  # of arms that guess: below which a guess ends
        self._arms = [ArmRecord(8 * options.memory) for _ in arms]
        self.costs = MeasuredCosts(arms)
        self._texts: dict[int, SequenceRecord] = {}
        self._chosen: dict[int, ArmDepth] = {}  # of the step under way
        self._planned: list[int] = []  # sequences that the plan was made for
        self._until_plan, self._pause = 0.0, 0  # rounds until the next plan, and between two
        self._sleeping = 0.0  # how much of a round until the next plan one is that was slept through
        self._rate = 0.0  # tokens a second that the plan promises
        self._probes = Probes(options.exploration)
        self._probe: Probe | None = None  # of the round under way
        self._doubts = Doubts(len(arms))
        self._watcher = Watcher(arms, options.num_speculative_tokens)
        self._trials = Trials()
        self._nap = Nap()

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The plan of the last few rounds, or a new one; cut to what each request allows."""
        limit = self._options.num_speculative_tokens
        if not limit:
            return [_plain(self._listeners.arms)] * len(seqs)
        ids = [seq.id for seq in seqs]
        if self._nap.rounds_left and (asleep := self._nap.go_on(ids)) is not None:
            return asleep
        if self._nap.num_slept:
            self._wake()
        self._until_plan, self._probe = self._until_plan - 1, None
        for seq in seqs:
            if seq.id not in self._texts:
                self._meet(seq, len(seqs))
        choices = self._trials.choose(seqs, self._texts, self._arms, self.costs)
        if choices is None:
            choices = self._present_plan(seqs, ids)
        budgets = []
        for seq, choice in zip(seqs, choices, strict=True):
            text = self._texts[seq.id]
            arm, depth = text.fixed or choice
            depth = allowed(seq, depth if text.fixed else min(depth, limit)) if depth else 0
            self._chosen[seq.id] = ArmDepth(arm, depth)
            whole = self._trials.now is not None or text.fixed or seq.id in self._doubts.now
            survival = 0.0 if whole else self._survival.get(arm, 0.0)
            budget = Budget(depth=depth, arm=arm, survival=survival, resting=text.resting)
            budgets.append(budget if depth else _plain(text.resting))
        self._watcher.watch(seqs, self._chosen, self._texts, self.costs)
        return budgets

    def spare(self, seq: Sequence, crowd: int) -> frozenset[int]:
        """Whom the request has not named, and the listeners that would leave the text at once, like others before."""
        if not self._options.num_speculative_tokens:
            return self._listeners.arms
        text = self._meet(seq, crowd)
        if not text.is_asked:
            self._listeners.spare(text)
        return text.resting

    def update(self, events: Seq[StepEvent]) -> None:
        """Learn costs and acceptance, and settle what a probe has really lost or won."""
        if self._nap.is_asleep or not self._options.num_speculative_tokens:
            self._nap.is_asleep = False
            for event in events:
                if event.num_certain:  # of a text that joins, which no arm has read
                    self.costs.doze(event.seq_id, event.num_certain + len(event.tokens))
            return
        made = dict[int, ArmDepth]()
        for event in events:
            made[event.seq_id] = self._made(event)
        seconds = self.costs.add(events, made)
        tokens, num_certain, calm, told, probe = 0, 0, True, False, self._probe
        for event in events:
            tokens, num_certain = tokens + len(event.tokens), num_certain + event.num_certain
            arm, depth = self._chosen.pop(event.seq_id, PLAIN)
            calm &= not depth
            if event.finish_reason is not None or not event.tokens or event.seq_id not in self._texts:
                continue
            if depth:
                self._arms[arm].add(depth, event.num_nodes - 1)
            accepted = min(event.num_accepted, depth)
            if probe is not None and event.seq_id == probe.seq_id:
                told = accepted > 0 or not probe.choice.depth
            calm &= not self._texts[event.seq_id].learn(ArmDepth(arm, depth), event.tokens, accepted)
        if num_certain:  # the pass has read a prompt, and shows no costs
            self._trials.put_back()
            self._doubts.put_back()
            return
        self._trials.settle(self._arms, self.costs)
        told = (self._doubts.now != {} and self._doubts.settle()) or told
        self._doubts.waits = False
        won = tokens / self._rate - seconds if probe is not None else 0.0
        self._probes.save(1, seconds, self.costs, won=won)
        if told:  # a guess that was wrong can wait; what else was tried may change the plan
            self._until_plan = 0
        if calm and self._rate:
            self._fall_asleep(events)

    def _made(self, event: StepEvent) -> ArmDepth:
        """What was guessed of what was chosen: where a guess ended early, it cost less."""
        arm, depth = self._chosen.get(event.seq_id, PLAIN)
        return ArmDepth(arm, min(depth, event.draft_depth) if self._ends_early[arm] else depth)

    def end(self, seqs: Seq[Sequence]) -> None:
        """Forget the texts; what they taught of the arms stays."""
        for seq in seqs:
            self._texts.pop(seq.id, None)
            self._chosen.pop(seq.id, None)
            self.costs.forget(seq.id)
            self._probes.drop(seq.id)
            self._doubts.drop(seq.id)
        self._nap.rounds_left = 0  # it ends, though the same texts should run again

    def keep(self) -> dict[str, Any] | None:
        """What the next engine may begin with: the costs, and how each arm has fared; None before any trial is over."""
        if not self._trials.has_been_plain:
            return None
        records = zip(self._facts, self._arms, strict=True)
        return {"costs": self.costs.kept(), "arms": {arm.name: record.kept() for arm, record in records}}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Begin with what another engine kept; then there are fewer trials.

        Raises `ValueError`, `KeyError` or `TypeError` for what is none, and has then changed nothing.
        """
        arms = recall_all(kept["arms"], [arm.name for arm in self._facts], 8 * self._options.memory)
        self.costs = MeasuredCosts.recalled(kept["costs"], self._facts)
        self._arms, self._trials.has_been_plain = arms, True

    def _meet(self, seq: Sequence, crowd: int) -> SequenceRecord:
        text = self._texts.get(seq.id)
        if text is None:
            text = self._texts[seq.id] = SequenceRecord(self._arms, self._options.memory, seq)
            self._listeners.meet(text, crowd)
        return text

    def _fall_asleep(self, events: Seq[StepEvent]) -> None:
        """No drafter guesses, and no look-up would have been right: look away for as long as that is worth it."""
        if any(self._texts[i].choice.depth for i in self._planned if i in self._texts):
            return
        self._nap.add(step_times(events).draft)
        budgets = [_plain(self._texts[i].resting if i in self._texts else _NO_ARM) for i in self._planned]
        self._nap.begin(self._planned, budgets, self.costs.passes(len(events)))

    def _wake(self) -> None:
        """The nap is over, or a text came or went: what was slept through is known to have been plain."""
        slept = self._nap.end()
        self._until_plan -= self._sleeping * slept
        self._probes.save(slept, self.costs.passes(len(self._planned)), self.costs)
        for i in self._planned:
            if i in self._texts:
                self._texts[i].doze(slept)
                self.costs.doze(i, slept)

    def _present_plan(self, seqs: Seq[Sequence], ids: list[int]) -> list[ArmDepth]:
        """What is planned, anew where that is due; and a probe in the place of one sequence's plan.

        A plan for many takes long beside a short pass, so that a batch that has changed waits until one is due: those
        who are new decode plainly. A text alone, or left alone, has its plan at once.
        """
        may_wait = self._pause > 1 and len(ids) > 1 and len(self._planned) > 1
        if self._until_plan <= 0 or (ids != self._planned and not may_wait):
            self._make_plan(seqs)
        choices = [self._texts[i].choice for i in ids]
        if self._doubts.due and self._doubts.begin(ids):
            return [self._doubts.now.get(i, choice) for i, choice in zip(ids, choices, strict=True)]
        if ids == self._planned and (probe := self._probes.take()) is not None:
            choices[ids.index(probe.seq_id)] = probe.choice
            self._probe = probe
        return choices

    def _make_plan(self, seqs: Seq[Sequence]) -> None:
        """Each sequence's arm as if all did alike; then the depths of all together."""
        self._planned = [seq.id for seq in seqs]
        limit, count = self._options.num_speculative_tokens, len(seqs)
        passes: Callable[[float], float] = self.costs.passes
        drafts = [cost.of(count) for cost in self.costs.drafts]
        nodes = [arm.nodes for arm in self._arms]
        self._survival = {}
        if count > 1:  # the sequences of a batch ask about the same rows and depths
            passes, drafts, nodes = cache(passes), list(map(cache, drafts)), list(map(cache, nodes))
        at_rest = passes(count)
        plain = count / at_rest
        survivals = []
        doubted: int | None = None
        for seq in seqs:
            text, deepest = self._texts[seq.id], allowed(seq, limit)
            best, most, alive = PLAIN, _MARGIN * plain, [0.0]
            promises = {}
            for index in range(len(self._arms)):
                if index in text.resting:
                    continue
                own = text.outlooks[index].survivals(deepest)
                drafting, passing, rows = drafts[index], passes, nodes[index]
                if ends := self._ends_early[index]:
                    drafting, passing = ended_costs(drafting, passes, rows, count)
                search = partial(
                    best_depth, own, pass_cost=passing, nodes=float if ends else rows, count=count, least=1
                )
                depth, rate = search(draft_cost=drafting)
                rate /= 1 + rate * self.costs.catch_up(seq.id, index) / max(1, seq.room)  # it reads first
                far = doubted is None and rate <= FAR * plain and not text.is_asked
                if far and self._doubts.may(seq, text.age, index, count, drafting, passing, search):
                    doubted = index
                promises[index] = rate
                if rate > most:
                    best, most, alive = ArmDepth(index, depth), rate, own
            text.choice = best
            survivals.append(alive)
            if not text.is_asked:
                if doubted is not None or self._doubts.due:
                    tried = {doubted, *(choice.arm for choice in self._doubts.due.get(seq.id, ()))}
                    promises = {arm: rate for arm, rate in promises.items() if arm not in tried}
                self._listeners.let_go(
                    text, promises, plain, work=self._nap.work, passing=at_rest, deepest=deepest, limit=limit
                )
        if doubted is not None:
            texts = [(seq.id, self._texts[seq.id]) for seq in seqs]
            self._doubts.start(doubted, [i for i, text in texts if not (text.is_asked or doubted in text.resting)])
        if not best.depth:
            most = plain
        if count > 1:
            most = self._divide(seqs, survivals)
        for seq in seqs:
            text = self._texts[seq.id]
            text.choice = text.fixed or text.choice
            arm, depth = text.choice
            if depth and self._ends_early[arm]:
                told = least_survival(most, depth, draft_cost=drafts[arm], pass_cost=passes, count=count)
                self._survival[arm] = min(told, self._survival.get(arm, told))
        self._rate = most
        affordable = ceil(count * len(self._arms) * _PLANNING / (_SHARE * at_rest))
        self._until_plan = self._pause = min(_PAUSE, affordable)
        self._sleeping = self._pause / affordable
        self._probes.prepare(
            seqs, self._texts, self._arms, self.costs, rate=self._rate, watched=self._watcher.free(self.costs)
        )

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


@lru_cache(maxsize=64)
def _plain(resting: frozenset[int]) -> Budget:
    """Plain decoding, of which a large batch needs one for each text and round."""
    return Budget(depth=0, resting=resting)
