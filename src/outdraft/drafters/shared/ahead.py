"""Guesses behind texts that are not written yet: what a drafter does while the target judges.

    text ... p | d1 d2 d3 | e1 e2 e3 e4        d: under judgement; e: guessed meanwhile, as if all d were right
    judged: d1 d2 d3 and e1                    -> e2 e3 e4 is the next proposal, ready at once
    judged: d1 and another token               -> all dropped

The e's are drawn by the drafter's own coins of their root position from the law after their own prefix, and whether
they are used depends on tokens before them only, so their laws stand. Data in: an inner drafter and sequences; data
out: chains.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain, host_tree
from outdraft.core.drafter import Rewinds, Seen, forget
from outdraft.core.errors import CapabilityError
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.shared.nested import build_nested


@dataclass(slots=True)
class Guess:
    """A chain of tokens behind some text, with what is known of each."""

    tokens: list[int] = field(default_factory=list)
    laws: list[Tensor] = field(default_factory=list)  # [V] that each was drawn from; empty: deterministic guesses
    others: list[list[int]] = field(default_factory=list)  # what the drafter also guessed in each one's place

    def draft(self, pending: int, budget: Budget) -> Draft:
        """As much as the budget allows."""
        size = min(budget.depth, len(self.tokens), len(self.tokens) if budget.nodes is None else budget.nodes)
        laws = torch.stack(self.laws[:size]) if self.laws and size else None
        return chain([pending, *self.tokens[:size]], laws)

    def drop(self, count: int) -> None:
        """Forget the first `count` tokens: they have become text."""
        del self.tokens[:count], self.laws[:count], self.others[:count]

    def extend(self, more: "Guess") -> None:
        """What follows."""
        self.tokens += more.tokens
        self.laws += more.laws
        self.others += more.others


def first_path(draft: Draft) -> Guess:
    """The chain of first children; a drawn one keeps its law, whatever is left out beside it."""
    tree, guess, node = host_tree(draft), Guess(), 0
    while children := tree.children[node]:
        if draft.q is not None:
            guess.laws.append(draft.q[node])
        guess.others.append([tree.tokens[child] for child in children[1:]])
        node = children[0]
        guess.tokens.append(tree.tokens[node])
    return guess


def imagine(seq: Sequence, tokens: Seq[int]) -> Sequence:
    """The sequence as it will be if these tokens follow."""
    return replace(seq, tokens=[*seq.tokens, *tokens], output_counts=seq.output_counts + Counter(tokens))


def build_rewinding(described: str | Mapping[str, Any], port: TargetPort, asker: str) -> Rewinds:
    """The inner drafter. Raises `CapabilityError` where it cannot be asked about texts that never come to be."""
    inner, method = build_nested(described, port)
    if not getattr(inner, "rewinds", False):
        raise CapabilityError(
            f"{asker} asks its inner drafter about texts that may turn out otherwise, and {method.name!r} cannot go "
            "back here: choose a draft_model (on a GPU, with exact=True)"
        )
    return inner  # type: ignore[return-value]


@dataclass(slots=True)
class Standing:
    """What stands behind one sequence's text."""

    length: int = 0  # of the text that the guess continues
    guess: Guess = field(default_factory=Guess)
    budget: Budget = field(default_factory=lambda: Budget(depth=0))  # of the last round

    def follow(self, seq: Sequence) -> None:
        """The text has grown: keep what it confirms, or nothing."""
        new = seq.tokens[self.length :]
        if self.guess.tokens[: len(new)] == new:
            self.guess.drop(len(new))
        else:
            self.guess = Guess()
        self.length = len(seq.tokens)


class AheadDrafter:
    """Proposes what stands ready and never drafts while the target waits.

    `missing(standing, num_proposed)`: how many more tokens to guess now, 0 for enough; asked again after each piece.
    """

    needs = Needs()

    def __init__(self, inner: Rewinds, missing: Callable[[Standing, int], int], *, patient: bool) -> None:
        self.inner = inner
        self._missing = missing
        self._patient = patient  # goes on when the pass is over
        self._standing: dict[int, Standing] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing stands."""
        self.inner.begin(seqs)
        self._standing |= {seq.id: Standing() for seq in seqs}

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """What was guessed while the last pass ran and has come true so far; after a miss, the pending token alone."""
        drafts = []
        for seq, budget in zip(seqs, budgets, strict=True):
            standing = self._standing[seq.id]
            standing.follow(seq)
            standing.budget = budget
            drafts.append(standing.guess.draft(seq.pending, budget))
        return drafts

    def ahead(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> None:
        """Guess on, behind all that stands."""
        while self._patient or not is_over():
            asked = []
            for seq, draft in zip(seqs, drafts, strict=True):
                standing = self._standing[seq.id]
                if standing.budget.depth and (count := self._missing(standing, draft.num_nodes - 1)) > 0:
                    asked.append((standing, imagine(seq, standing.guess.tokens), count))
            if not asked:
                return
            budgets = [replace(standing.budget, depth=count, nodes=None) for standing, _, count in asked]
            found = [first_path(draft) for draft in self.inner.propose([text for _, text, _ in asked], budgets)]
            for (standing, _, _), more in zip(asked, found, strict=True):
                standing.guess.extend(more)
            if not any(more.tokens for more in found):
                return  # no room

    def observe(self, seen: Seq[Seen]) -> None:
        """The texts say it all."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Nothing of a text that is over stands; what was guessed behind it was never in the target's cache."""
        self.inner.end(seqs)
        for seq in seqs:
            self._standing.pop(seq.id, None)

    def forget(self) -> None:
        """The inner drafter's."""
        forget(self.inner)
