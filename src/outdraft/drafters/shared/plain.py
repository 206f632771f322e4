"""What drafters have alike: verbs that do nothing, and guesses that are made text by text.

Data in and out: those of the contract (`core/drafter.py`). A method says what is otherwise with it.
"""

from collections.abc import Sequence as Seq

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs


class PlainDrafter:
    """Keeps nothing of a text, needs nothing of the target but its passes, and has no weights."""

    needs: Needs = Needs()
    traits: Traits = Traits()

    def begin(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence."""

    def observe(self, seen: Seq[Seen]) -> None:
        """What a pass showed is not needed: the text says what was accepted."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence, so nothing is dropped."""


class OneByOne(PlainDrafter):
    """Guesses for each sequence by itself."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """`guess` for each."""
        return [self.guess(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """What follows the sequence's tokens, as far as the budget allows; node 0 alone where nothing is known."""
        raise NotImplementedError  # each subclass says it
