"""Any drafter made useless: every guess is replaced by the id after it, honestly.

    tokens   a b c    ->   a+1 b+1 c+1          so that what was right is wrong
    q        [.2 .5 .3]    [.3 .2 .5]           the distribution that the replaced tokens were drawn from: still exact

What is drafted behind a guess, beside the pass, is replaced likewise. The drafter sees its own guesses, in `observe`
and while it works ahead. A draft that resumes from its own hidden states cannot be replaced, and is left alone. Data
in: a drafter; data out: a drafter.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace

import torch
from torch import Tensor

from outdraft.core.draft import Continuation, Draft, Role
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence


class Spoiled:
    """Wraps a drafter and replaces each of its guesses by a wrong one."""

    def __init__(self, drafter: Drafter, vocab_size: int) -> None:
        self.needs = drafter.needs
        self._drafter, self._drafter_ahead = drafter, drafter.traits.ahead
        self.traits = Traits(inner=(drafter,), ahead=None if self._drafter_ahead is None else self._ahead)
        self._vocab_size = vocab_size
        self.num_replaced = 0  # guesses
        self.num_left_alone = 0  # drafts
        self._honest: dict[int, Draft] = {}  # sequence -> what it guessed itself

    def begin(self, seqs: Seq[Sequence]) -> None:
        self._drafter.begin(seqs)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """The drafter's guesses, spoiled."""
        drafts = self._drafter.propose(seqs, budgets)
        self._honest.update((seq.id, draft) for seq, draft in zip(seqs, drafts, strict=True))
        return [self._spoil(draft) for draft in drafts]

    def observe(self, seen: Seq[Seen]) -> None:
        """What the pass showed, under the drafter's own guess."""
        self._drafter.observe(
            [replace(one, draft=self._honest.pop(one.seq.id, one.draft)) if one.draft else one for one in seen]
        )

    def end(self, seqs: Seq[Sequence]) -> None:
        self._drafter.end(seqs)
        for seq in seqs:
            self._honest.pop(seq.id, None)

    def _ahead(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> list[Continuation | None]:
        assert self._drafter_ahead is not None
        own = [self._honest.get(seq.id, draft) for seq, draft in zip(seqs, drafts, strict=True)]
        found = self._drafter_ahead(seqs, own, is_over)
        return [one and Continuation(token=(one.token + 1) % self._vocab_size, q=_rolled(one.q)) for one in found]

    def _spoil(self, draft: Draft) -> Draft:
        if draft.resume is not None:
            self.num_left_alone += draft.num_nodes > 1
            return draft
        guessed = torch.ones_like(draft.tokens, dtype=torch.bool)
        if draft.roles is not None:
            guessed = draft.roles == Role.VERIFY
        guessed[0] = False
        self.num_replaced += int(guessed.sum())
        tokens = torch.where(guessed, (draft.tokens + 1) % self._vocab_size, draft.tokens)
        return replace(draft, tokens=tokens, q=_rolled(draft.q))


def _rolled(q: Tensor | None) -> Tensor | None:
    return None if q is None else q.roll(1, -1)
