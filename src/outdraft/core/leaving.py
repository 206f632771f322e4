"""A drafter that leaves texts: it is not asked about them any more, hears nothing of them and wants no states of them.

    Settled.resting   the policy spares it a new text, or the request has named another: it never begins it
    Budget.resting    the policy has it leave a text that it has begun: it ends it, for good

Where it has left every text that runs, no hidden states are kept for it. Data in: sequences and budgets; data out:
drafts.
"""

from collections.abc import Sequence as Seq

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs


class LeavingDrafter:
    """`inner` as the policy's arm of this number."""

    def __init__(self, inner: Drafter, arm: int = 0) -> None:
        self.inner, self._arm = inner, arm
        self.following = set[int]()  # sequences
        self.rests = False  # texts run, and it has left them all
        self._left = set[int]()  # sequences that it has left, or was spared, which are not over
        self._resting: Needs | None = None

    @property
    def needs(self) -> Needs:
        """The drafter's own; where it rests, only which layers its drafts would begin at."""
        if not self.rests:
            return self.inner.needs
        if self._resting is None:
            self._resting = Needs(resume_layer=self.inner.needs.resume_layer)
        return self._resting

    @property
    def traits(self) -> Traits:
        """What a step asks for; all else is asked of the drafter itself."""
        return Traits(inner=(self.inner,), guesses=self.inner.traits.guesses)

    def begin(self, seqs: Seq[Sequence]) -> None:
        followed = list[Sequence]()
        for seq in seqs:
            if self._arm in seq.settled.resting:
                self._left.add(seq.id)
            else:
                self.following.add(seq.id)
                followed.append(seq)
        self.rests = bool(self._left) and not self.following
        if followed:
            self.inner.begin(followed)

    def leave(self, seq: Sequence) -> None:
        """End it for the drafter, unless that has been done."""
        if seq.id in self.following:
            self.following.discard(seq.id)
            self._left.add(seq.id)
            self.rests = not self.following
            self.inner.end([seq])

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """The pending token alone for texts that it has left, or is not to guess for: of those it is not asked."""
        asked = list[int]()
        for i, (seq, budget) in enumerate(zip(seqs, budgets, strict=True)):
            if self._arm in budget.resting:
                self.leave(seq)
            elif budget.depth > 0 and seq.id in self.following:
                asked.append(i)
        if len(asked) == len(seqs):
            return self.inner.propose(seqs, budgets)
        drafts = [chain(seq.tokens[-1:]) for seq in seqs]
        made = self.inner.propose([seqs[i] for i in asked], [budgets[i] for i in asked]) if asked else []
        for i, draft in zip(asked, made, strict=True):
            drafts[i] = draft
        return drafts

    def observe(self, seen: Seq[Seen]) -> None:
        if followed := [one for one in seen if one.seq.id in self.following] if self._left else seen:
            self.inner.observe(followed)

    def end(self, seqs: Seq[Sequence]) -> None:
        own = list[Sequence]()
        for seq in seqs:
            if seq.id in self.following:
                self.following.discard(seq.id)
                own.append(seq)
            self._left.discard(seq.id)
        self.rests = bool(self._left) and not self.following
        if own:
            self.inner.end(own)
