"""Catch errors of drafters and policies, so that they cost speculation but never an answer.

If a drafter raises, the sequences that it was asked about are ended in the drafter and go on with plain decoding
(`Sequence.speculates`). Where one of several made `propose` raise, the others are asked for once more, each by
itself. Other sequences keep their drafter. A policy that raises means plain decoding for that round.

A drafter whose own cache is full has no fault: what did not fit while it began or learned is begun again before the
sequence's next guess, and until there is room for it the sequence has none.

The first error of each is logged, with its traceback.
"""

import logging
from collections.abc import Callable, Set
from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial
from typing import TypeVar

from outdraft.core.draft import Continuation, Draft, chain
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.events import StepEvent
from outdraft.core.policy import Budget, Cut, Policy, spared_by
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.decode.forced import undrafted
from outdraft.options.errors import CacheFullError, RequestError
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.options.shown import shown, told

T = TypeVar("T")
_log = logging.getLogger(__name__)


class _LogsFirstError:
    """Called with every error of `who`, it logs the first."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._is_told = False

    def __call__(self, error: BaseException) -> None:
        if not self._is_told:
            self._is_told = True
            _log.warning(
                "%s raised %s; its requests go on with plain decoding (later errors of it are not logged)",
                self._who,
                told(error),
                exc_info=error,
            )


class ShieldedDrafter:
    """The same drafter, which raises nothing and is asked only about sequences that it has not failed."""

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner
        self._tell = _LogsFirstError(f"the drafter {type(inner).__name__}")
        self._failed_ahead: tuple[Seq[Sequence], BaseException] | None = None
        self._late: set[int] = set()  # sequences that the drafter has yet to begin, for want of room
        traits = inner.traits
        self._inner_ahead, self._inner_guesses = traits.ahead, traits.guesses

    @property
    def needs(self) -> Needs:
        return self.inner.needs

    @property
    def traits(self) -> Traits:
        """What a step asks for; all else is asked of the drafter itself."""
        ahead = None if self._inner_ahead is None else self._ahead
        return Traits(ahead=ahead, inner=(self.inner,), guesses=self._inner_guesses)

    def begin(self, seqs: Seq[Sequence]) -> None:
        """One after the other, so that an error has an owner."""
        for seq in seqs:
            if seq.speculates:  # it may have failed before the sequence had to begin anew
                self._begin(seq)

    def _begin(self, seq: Sequence) -> None:
        try:
            self.inner.begin([seq])
            self._late.discard(seq.id)
        except CacheFullError:
            self._start_over(seq)
        except anything_but_an_interrupt() as error:
            self.give_up([seq], error)

    def _start_over(self, seq: Sequence) -> None:
        """Nothing is held of it until there is room."""
        self._late.add(seq.id)
        self._forget(seq)

    def _forget(self, seq: Sequence) -> None:
        try:
            self.inner.end([seq])
        except anything_but_an_interrupt():
            _log.debug("a drafter that failed could not end a sequence", exc_info=True)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each; the pending token alone where the drafter failed, or has no room."""
        if not self._late:
            return self._ask_for_guesses(seqs, budgets)
        for seq in seqs:
            if seq.id in self._late:
                self._begin(seq)
        ready = [i for i, seq in enumerate(seqs) if seq.speculates and seq.id not in self._late]
        guesses: list[Draft] = [undrafted([seq.pending]) for seq in seqs]
        found = self._ask_for_guesses([seqs[i] for i in ready], [budgets[i] for i in ready]) if ready else []
        for i, guess in zip(ready, found, strict=True):
            guesses[i] = guess
        return guesses

    def _ask_for_guesses(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        try:
            return _one_each(self.inner.propose(seqs, budgets), seqs, Draft, "draft")
        except CacheFullError:  # no fault of the drafter: later there is room again
            raise
        except anything_but_an_interrupt() as error:
            if len(seqs) == 1:
                self.give_up(seqs, error)
                return [chain([seqs[0].pending])]
        return [self._ask_for_guesses([seq], [budget])[0] for seq, budget in zip(seqs, budgets, strict=True)]

    def observe(self, seen: Seq[Seen]) -> None:
        """What the pass showed of those that still have their drafter."""
        if self._failed_ahead is not None:
            seqs, error = self._failed_ahead
            self._failed_ahead = None
            self.give_up(seqs, error)
        followed = [one for one in seen if one.seq.speculates and one.seq.id not in self._late]
        if not followed:
            return
        try:
            self.inner.observe(followed)
        except CacheFullError:  # it is not known of which of them it has learned
            for one in followed:
                self._start_over(one.seq)
        except anything_but_an_interrupt() as error:
            self.give_up([one.seq for one in followed], error)

    def end(self, seqs: Seq[Sequence]) -> None:
        """Those that failed have ended already, and so have those that are to begin again."""
        for seq in seqs:
            is_late = seq.id in self._late
            self._late.discard(seq.id)
            if seq.speculates and not is_late:
                try:
                    self.inner.end([seq])
                except anything_but_an_interrupt() as error:
                    self._tell(error)

    def give_up(self, seqs: Seq[Sequence], error: BaseException) -> None:
        """These go on with plain decoding. What the drafter holds of them is let go, if it can be.

        A `RequestError` is the request's own, of a form that is too much work along a guess: no fault, and not logged.
        """
        if not isinstance(error, RequestError):
            self._tell(error)
        for seq in seqs:
            if seq.speculates:
                seq.speculates = False
                self._late.discard(seq.id)
                self._forget(seq)

    def _ahead(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> list[Continuation | None]:
        """Perhaps in a thread beside the pass, so what went wrong is settled by the next `observe`."""
        assert self._inner_ahead is not None
        asked = [i for i, seq in enumerate(seqs) if seq.speculates and seq.id not in self._late]
        found: list[Continuation | None] = [None] * len(seqs)
        if not asked:
            return found
        try:
            made = self._inner_ahead([seqs[i] for i in asked], [drafts[i] for i in asked], is_over)
            for i, one in zip(asked, made, strict=True):
                found[i] = one
        except CacheFullError:
            raise
        except anything_but_an_interrupt() as error:
            self._failed_ahead = [seqs[i] for i in asked], error
            return [None] * len(seqs)
        return found


class ShieldedPolicy:
    """The same policy, which raises nothing."""

    def __init__(self, inner: Policy) -> None:
        self.inner = inner
        self._tell = _LogsFirstError(f"the policy {type(inner).__name__}")

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """One budget for each; plain decoding for all where the policy failed."""
        try:
            budgets = _one_each(self.inner.plan(seqs), seqs, Budget, "budget")
        except anything_but_an_interrupt() as error:
            self._tell(error)
            return [Budget(depth=0)] * len(seqs)
        cuts = {one.cut: partial(self._cut, one.cut) for one in budgets if one.cut is not None}
        return [replace(one, cut=cuts[one.cut]) if one.cut is not None else one for one in budgets] if cuts else budgets

    def _cut(self, cut: Cut, seqs: Seq[Sequence], drafts: Seq[Draft]) -> list[int]:
        """How many nodes of each draft are verified: all where the policy failed."""
        whole = [draft.num_nodes for draft in drafts]
        try:
            sizes = _one_each(cut(seqs, drafts), seqs, int, "number of nodes")
            return [max(1, min(size, most)) for size, most in zip(sizes, whole, strict=True)]
        except anything_but_an_interrupt() as error:
            self._tell(error)
            return whole

    def spare(self, seq: Sequence, crowd: int) -> frozenset[int]:
        """Arms that are to rest; none where the policy failed."""
        try:
            spared = spared_by(self.inner, seq, crowd)
            if not (isinstance(spared, Set) and all(isinstance(arm, int) for arm in spared)):
                raise TypeError(f"{shown(spared)} in place of a set of whole numbers, one for each arm that is spared")
            return frozenset(spared)
        except anything_but_an_interrupt() as error:
            self._tell(error)
            return frozenset()

    def update(self, events: Seq[StepEvent]) -> None:
        """What it cannot learn, it does not."""
        try:
            self.inner.update(events)
        except anything_but_an_interrupt() as error:
            self._tell(error)

    def end(self, seqs: Seq[Sequence]) -> None:
        try:
            self.inner.end(seqs)
        except anything_but_an_interrupt() as error:
            self._tell(error)


def _one_each(given: list[T], seqs: Seq[Sequence], kind: type[T], name: str) -> list[T]:
    """What a plug-in gave, if that is one of the kind for each sequence."""
    if len(given) != len(seqs):
        raise ValueError(f"{len(given)} {name}s for {len(seqs)} sequences")
    for one in given:
        if not isinstance(one, kind):
            raise TypeError(f"{shown(one)} in place of a {name}")
    return given
