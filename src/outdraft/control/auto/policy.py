"""Choose arm and depth for every sequence by what rounds have cost and brought; plain decoding is one of the choices.

    measured   t_pass(rows), t_draft(arm, depth)         of the engine, `shared/costs.py`
               S_i(sequence, arm)                         survival of a guess, forgetting, `shared/acceptance.py`
    chosen     max (B + sum of S) / (t_draft + t_pass)    tokens a second of the whole batch
    explored   with 1.5 % of the time: an arm out of use guesses for one round when its likely loss has been saved up

A probe that pays earns credit for the next one, so a change of the text is followed at once, and arms that never pay
are looked at ever less than the saved time allows. Data in: sequences and events; data out: one budget each. Times are
read from events alone, so a scripted clock makes it deterministic; a text never depends on it.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.auto.arms import Arm
from outdraft.control.auto.batch import divide_depths
from outdraft.control.shared.acceptance import Hazards
from outdraft.control.shared.costs import PLAIN, Choice, Costs
from outdraft.control.shared.limits import allowed, check_range
from outdraft.control.shared.speedup import best_depth
from outdraft.core.events import StepEvent
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence

_SOON, _LATE = 4, 12  # rounds between two plans: after one that changed something, after many that did not
_APART = 4  # rounds between two probes, at least
_SAVED = 8.0  # passes of one row that may be saved up for probes
_PROBE_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoOptions:
    """Limits of what it may choose. Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 16  # the deepest guess
    memory: float = 32.0  # rounds after which a round counts 1/e in a sequence's acceptance
    exploration: float = 0.015  # share of the time that probes may cost

    def __post_init__(self) -> None:
        check_range("num_speculative_tokens", self.num_speculative_tokens, 0)
        check_range("memory", self.memory, 1)
        check_range("exploration", self.exploration, 0, 1)


class _Text:
    """One sequence: its acceptance with each arm, and what is planned for it."""

    __slots__ = ("choice", "hazards", "last", "num_rounds")

    def __init__(self, arms: Seq[Arm], memory: float) -> None:
        self.hazards = [Hazards(memory, arm.hazards) for arm in arms]
        self.choice = PLAIN
        self.num_rounds = 0
        self.last = [0] * len(arms)  # the round in which each arm guessed last

    def add(self, arm: int, depth: int, accepted: int) -> None:
        """A round in which `arm` guessed."""
        self.hazards[arm].age(self.num_rounds - self.last[arm] - 1)
        self.hazards[arm].add(depth, accepted)
        self.last[arm] = self.num_rounds


class AutoPolicy:
    """One for an engine: costs and the arms' acceptance are shared, so a new text begins with what others taught."""

    def __init__(self, options: AutoOptions, num_arms: int) -> None:
        self._options = options
        self._arms = [Arm(8 * options.memory) for _ in range(num_arms)]
        self.costs = Costs(num_arms)
        self._texts: dict[int, _Text] = {}
        self._chosen: dict[int, Choice] = {}  # of the step under way
        self._planned: list[int] = []  # sequences that the plan was made for
        self._until_plan = 0
        self._pause = _SOON
        self._rate = 0.0  # tokens a second that the plan promises
        self._credit = 0.0  # seconds saved for probes
        self._since_probe = 0
        self._turn = 0
        self._probe: tuple[int, Choice, float] | None = None  # sequence, what, likely loss in seconds
        self._is_probing = False
        self._num_plain = 0

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The plan of the last few rounds, or a new one; cut to what each request allows."""
        self._until_plan -= 1
        self._is_probing = False
        limit = self._options.num_speculative_tokens
        if not limit:
            return [Budget(depth=0)] * len(seqs)
        if (trial := self._trial(seqs)) is not None:
            choices = [trial] * len(seqs)
        else:
            ids = [seq.id for seq in seqs]
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
            self._chosen[seq.id] = Choice(arm, depth)
            budgets.append(Budget(depth=depth, arm=arm))
        return budgets

    def update(self, events: Seq[StepEvent]) -> None:
        """Learn costs and acceptance, and settle what a probe has really lost or won."""
        seconds = self.costs.add(events, self._chosen)
        tokens = 0
        for event in events:
            tokens += len(event.tokens)
            arm, depth = self._chosen.pop(event.seq_id, PLAIN)
            text = self._texts.get(event.seq_id)
            if text is None:
                continue
            text.num_rounds += 1
            if not depth or event.finish_reason is not None:
                continue
            accepted = min(event.num_accepted, depth)
            self._arms[arm].add(depth, event.num_nodes - 1, accepted)
            text.add(arm, depth, accepted)
        if any(event.num_certain for event in events):
            return
        self._since_probe += 1
        self._credit += self._options.exploration * seconds
        if self._is_probing:
            self._credit += tokens / self._rate - seconds
            self._until_plan = 0
        most = _SAVED * self.costs.passes(1)
        self._credit = max(-most, min(self._credit, most))

    def end(self, seqs: Seq[Sequence]) -> None:
        """Forget the texts; what they taught of the arms stays."""
        for seq in seqs:
            self._texts.pop(seq.id, None)
            self._chosen.pop(seq.id, None)
            self.costs.forget(seq.id)
            if self._probe is not None and self._probe[0] == seq.id:
                self._probe = None

    def _trial(self, seqs: Seq[Sequence]) -> Choice | None:
        """An arm that has not had its trials, for everybody, so that its costs are its own; then one plain pass."""
        for seq in seqs:
            if seq.id not in self._texts:
                self._texts[seq.id] = _Text(self._arms, self._options.memory)
        for index, arm in enumerate(self._arms):
            if (depth := arm.trial) is not None and max(allowed(seq, depth) for seq in seqs) == depth:
                arm.num_tried += 1
                return Choice(index, depth)
        if not self._num_plain:
            self._num_plain = 1
            return PLAIN
        return None

    def _make_plan(self, seqs: Seq[Sequence]) -> None:
        """Each sequence's arm as if all did alike; then the depths of all together."""
        self._planned = [seq.id for seq in seqs]
        limit, count = self._options.num_speculative_tokens, len(seqs)
        passes = self.costs.passes
        before = [self._texts[seq.id].choice for seq in seqs]
        survivals = []
        for seq in seqs:
            text, deepest = self._texts[seq.id], allowed(seq, limit)
            best, most, alive = PLAIN, 0.0, [0.0]
            for index, arm in enumerate(self._arms):
                own = text.hazards[index].survivals(deepest)
                draft = self.costs.drafts[index]
                depth, rate = best_depth(
                    own,
                    draft_cost=lambda k, draft=draft: draft(k) / count,  # type: ignore[misc]
                    pass_cost=(lambda rows: passes(count * rows) / count) if count > 1 else passes,
                    nodes=arm.nodes,
                )
                if rate > most:
                    best, most, alive = Choice(index, depth), rate, own
            text.choice = best
            survivals.append(alive)
        if count > 1:
            most = self._divide(seqs, survivals)
        self._rate = most
        choices = [self._texts[seq.id].choice for seq in seqs]
        self._pause = min(self._pause + 2, _LATE) if choices == before else _SOON
        self._until_plan = self._pause
        self._prepare_probe(seqs)

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
        for seq, arm, depth in zip(seqs, arms, depths, strict=True):
            self._texts[seq.id].choice = Choice(arm, depth)
        return rate

    def _prepare_probe(self, seqs: Seq[Sequence]) -> None:
        """In turn, each arm (and plain decoding) that is out of use, for each sequence in turn."""
        self._turn += 1
        seq = seqs[self._turn % len(seqs)]
        text = self._texts[seq.id]
        used = text.choice
        others = [index for index in range(len(self._arms)) if not used.depth or index != used.arm]
        others += [-1] if used.depth else []
        index = others[self._turn % len(others)]
        rows = sum(1 + self._arms[t.choice.arm].nodes(t.choice.depth) for t in (self._texts[s.id] for s in seqs))
        rows -= self._arms[used.arm].nodes(used.depth)
        if index < 0:
            tokens, seconds, choice = 1.0, self.costs.passes(rows), PLAIN
        else:
            survivals = text.hazards[index].survivals(allowed(seq, _PROBE_DEPTH))
            draft, arm = self.costs.drafts[index], self._arms[index]
            alone = self.costs.passes
            depth, _ = best_depth(survivals, draft_cost=draft, pass_cost=alone, nodes=arm.nodes)
            depth = max(1, depth)
            if not survivals:
                self._probe = None
                return
            choice = Choice(index, depth)
            tokens = 1 + sum(survivals[:depth])
            seconds = draft(depth) + alone(rows + arm.nodes(depth)) + self.costs.catch_up(seq.id, index)
        usual = 1 + sum(text.hazards[used.arm].survivals(used.depth))
        passing = self.costs.drafts[used.arm](used.depth) if used.depth else 0.0
        before = passing + self.costs.passes(rows + self._arms[used.arm].nodes(used.depth))
        self._probe = (seq.id, choice, (seconds - before) - (tokens - usual) / self._rate)


def build(options: AutoOptions, arms: Seq[str]) -> AutoPolicy:
    """A drafter without arms is one arm."""
    return AutoPolicy(options, max(1, len(arms)))
