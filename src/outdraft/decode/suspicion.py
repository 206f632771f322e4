"""Warn once of a drafter that is right far less often than it says: a fault that costs speed, and never a text.

A head that taps the wrong layers, or was trained for another target, chat template or vocabulary, still writes; its
guesses are just never accepted. So the first rounds ask how probable each guess is to the drafter (c), and two
sequential tests (Wald, "Sequential tests of statistical hypotheses", 1945) count which of those judged were accepted:

    sound    accepted at least as often as c / 3        no longer watched when 1,000 times likelier than broken
    broken   accepted at most as often as c / 10        reported when a million times likelier than sound
    likewise with 0.05 and 0.005 in place of c / 3 and c / 10, of greedy requests: a network that has learned nothing is
    not sure of anything

The first counts tokens with c >= 0.2 alone: what is drawn of a flat distribution is often accepted, whatever was drawn.
The likelihood ratio is a supermartingale for every sound drafter, whatever its tokens depend on and whenever one looks,
so it is blamed with a probability of at most 2e-6, ever; a broken one is let go by the first test with at most 1e-3.
Look-ups are not watched: what they call a share is a count. Data in: what a policy hears; data out: a line in the log.
"""

import logging
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from math import log

from outdraft.core.drafter import may_leave
from outdraft.core.events import StepEvent
from outdraft.core.leaving import LeavingDrafter
from outdraft.core.policy import Budget, Policy, Spares, spared_by
from outdraft.core.sequence import Sequence
from outdraft.decode.parts import Parts
from outdraft.decode.shield import ShieldedDrafter, ShieldedPolicy

_EVERY = 4  # rounds, of which one asks for confidences
_BROKEN, _SOUND = log(1e6), -log(1e3)
_SURE = 0.2
_MOST = 5_000  # judged tokens after which an undecided drafter is let go
_log = logging.getLogger("outdraft.notes")


@dataclass(slots=True, kw_only=True)
class Trial:
    """What is known of one drafter: logs of how much likelier broken is than sound, and counts of judged tokens."""

    by_word: float = 0.0  # against what it says itself
    by_share: float = 0.0  # against fixed shares
    said: float = 0.0  # sum of c
    num_judged: int = 0
    num_accepted: int = 0

    def add(self, sure: float, accepted: bool, *, greedy: bool) -> None:
        """One judged token, which the drafter held so probable."""
        self.said += sure
        self.num_judged += 1
        self.num_accepted += accepted
        if sure >= _SURE and self.by_word > _SOUND:
            self.by_word += _gain(sure / 3, sure / 10, accepted)
        if greedy and self.by_share > _SOUND:
            self.by_share += _gain(0.05, 0.005, accepted)

    @property
    def is_broken(self) -> bool:
        return max(self.by_word, self.by_share) >= _BROKEN

    @property
    def is_over(self) -> bool:
        """Whether it is decided, or not to be decided."""
        return self.is_broken or (self.by_word <= _SOUND and self.by_share <= 0) or self.num_judged >= _MOST


class Suspicion:
    """Of the drafters of one engine, by name."""

    def __init__(self) -> None:
        self.watched: dict[str, Trial] = {}  # those that are not decided
        self._known: set[str] = set()

    def watch(self, names: Iterable[str]) -> None:
        """Begin with those that it has not heard of."""
        self.watched |= {name: Trial() for name in names if name not in self._known}
        self._known.update(names)

    def hear(self, event: StepEvent, *, greedy: bool) -> None:
        """Count what a round says of its drafter, and report what is wrong."""
        trial = self.watched.get(event.drafted_by)
        if trial is None:
            return
        for i, sure in enumerate(event.confidences):
            trial.add(min(sure, 1.0), i < event.num_accepted, greedy=greedy)
            if trial.is_over:
                del self.watched[event.drafted_by]
                break
        if trial.is_broken:
            _log.warning(
                "the drafter %r holds its tokens %.0f %% probable, and the target accepted %d of %d (%.1f %%): it may "
                "have been trained for another target or another chat template, read other layers than in training "
                "(taps), or have another vocabulary. `outdraft train check DRAFT --target MODEL` compares it with its "
                "training; drafter='none' decodes without it",
                event.drafted_by,
                100 * trial.said / trial.num_judged,
                trial.num_accepted,
                trial.num_judged,
                100 * trial.num_accepted / trial.num_judged,
            )


class SuspiciousPolicy:
    """The same policy, which asks for confidences in one of a few rounds while a drafter is watched."""

    def __init__(self, inner: Policy, suspicion: Suspicion) -> None:
        self.inner = inner
        self._suspicion = suspicion
        self._num_rounds = 0
        self._asked: dict[int, bool] = {}  # sequence -> whether it is greedy

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """Hot requests are left out: above a temperature of 1 the likeliest token is rarely the one that is drawn."""
        budgets = list(self.inner.plan(seqs))
        self._asked.clear()
        if not self._suspicion.watched:
            return budgets
        self._num_rounds += 1
        if self._num_rounds % _EVERY:
            return budgets
        for i, (seq, budget) in enumerate(zip(seqs, budgets, strict=True)):
            if budget.depth and seq.request.params.temperature <= 1 and not seq.edits_logits:
                self._asked[seq.id] = seq.request.params.greedy
                budgets[i] = replace(budget, confident=True)
        return budgets

    def spare(self, seq: Sequence, crowd: int) -> frozenset[int]:
        return spared_by(self.inner, seq, crowd)

    def update(self, events: Seq[StepEvent]) -> None:
        """Hear those that were asked, then the policy hears all."""
        for event in events if self._asked else ():
            if event.seq_id in self._asked:
                self._suspicion.hear(event, greedy=self._asked[event.seq_id])
        self.inner.update(events)

    def end(self, seqs: Seq[Sequence]) -> None:
        self.inner.end(seqs)


def shielded(parts: Parts, suspicion: Suspicion) -> Parts:
    """The parts of an engine that serves: errors of plug-ins are caught, and the drafters are watched."""
    suspicion.watch(parts.held.watched)
    policy: Policy = ShieldedPolicy(parts.policy)
    if suspicion.watched:
        policy = SuspiciousPolicy(policy, suspicion)
    drafter, leaves = ShieldedDrafter(parts.drafter), may_leave(parts.drafter) and isinstance(parts.policy, Spares)
    return replace(parts, drafter=LeavingDrafter(drafter) if leaves else drafter, policy=policy)


def _gain(sound: float, broken: float, accepted: bool) -> float:
    """How much likelier one token makes it that the drafter is broken: a log likelihood ratio."""
    return log(broken / sound) if accepted else log((1 - broken) / (1 - sound))
