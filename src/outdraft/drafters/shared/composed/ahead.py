"""Drafting during the target's pass: guesses that continue a text which the target has not confirmed yet.

    text ... p | d1 d2 d3 | e1 e2 e3 e4        d: under judgement; e: guessed meanwhile, as if all d were right
    judged: d1 d2 d3 and e1                    -> e2 e3 e4 are the next proposal, ready at once
    judged: d1 and another token               -> all dropped

e1 goes to the rule as the draft's continuation, so that an unseeded bonus token is e1 as often as it may be (see
`verify/shared/proposal.py`). The e's are drawn by the drafter's own coins of their root position, from the distribution
after their own prefix. Whether they are used depends on tokens before them only, so their distributions stand. Data in:
an inner drafter and sequences; data out: chains.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from outdraft.core.coins import DraftCoins
from outdraft.core.constraint import Beyond
from outdraft.core.draft import Continuation, Draft, chain, host_tree
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.drafters.shared.composed.nested import build_nested
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CacheFullError, CapabilityError


@dataclass(slots=True)
class AheadGuess:
    """A chain of tokens behind a text, with the distribution and confidence of each."""

    tokens: list[int] = field(default_factory=list)
    distributions: list[Tensor] = field(default_factory=list)  # [V] that each was drawn from; empty: deterministic
    others: list[list[int]] = field(default_factory=list)  # the drafter's other guesses at each position
    confidences: list[float] = field(default_factory=list)  # the drafter's probability of each; 1 where not asked for

    def survival(self, budget: Budget) -> float:
        """The product of all confidences, corrected by the budget's calibration if it has one."""
        return prod(budget.chance(sure) for sure in self.confidences)

    def is_cut(self, budget: Budget) -> bool:
        """Whether the budget ends the chain here: its last token is too unsure, or its path too unlikely."""
        unsure = bool(self.confidences) and self.confidences[-1] < budget.confidence
        return unsure or self.survival(budget) < budget.survival

    def draft(self, pending: int, budget: Budget) -> Draft:
        """The pending token and as many of the guessed ones as the budget allows."""
        size = min(budget.depth, len(self.tokens), len(self.tokens) if budget.nodes is None else budget.nodes)
        distributions = torch.stack(self.distributions[:size]) if self.distributions and size else None
        confidence = torch.tensor([1.0, *self.confidences[:size]]) if budget.wants_confidence else None
        return chain([pending, *self.tokens[:size]], distributions, confidence=confidence)

    def behind(self, count: int) -> Continuation | None:
        """The token after the first `count` ones; None where the chain ends."""
        if len(self.tokens) <= count:
            return None
        return Continuation(token=self.tokens[count], q=self.distributions[count] if self.distributions else None)

    def drop(self, count: int) -> None:
        """Forget the first `count` tokens: they have become text."""
        del self.tokens[:count], self.distributions[:count], self.others[:count], self.confidences[:count]

    def extend(self, more: "AheadGuess") -> None:
        self.tokens += more.tokens
        self.distributions += more.distributions
        self.others += more.others
        self.confidences += more.confidences


def first_path(draft: Draft) -> AheadGuess:
    """The chain of first children. A drawn child keeps its whole distribution, though its siblings are left out."""
    tree, guess, node = host_tree(draft), AheadGuess(), 0
    while children := tree.children[node]:
        if draft.q is not None:
            guess.distributions.append(draft.q[node])
        guess.others.append([tree.tokens[child] for child in children[1:]])
        node = children[0]
        guess.tokens.append(tree.tokens[node])
        guess.confidences.append(float(draft.confidence[node]) if draft.confidence is not None else 1.0)
    return guess


def imagine(seq: Sequence, tokens: Seq[int]) -> Sequence:
    """The sequence as it will be if these tokens follow, with coins for what is drafted behind them in this round."""
    round_at = len(seq.tokens) - 1

    def coins(imagined: Sequence) -> DraftCoins:
        return seq.draft_coins(imagined).in_round(round_at)

    counts = seq.output_counts + Counter(tokens)
    constraint = None if seq.constraint is None else Beyond(seq.constraint, tuple(tokens))
    return replace(seq, tokens=[*seq.tokens, *tokens], output_counts=counts, draft_coins=coins, constraint=constraint)


def build_rewinding(described: str | Mapping[str, Any], port: TargetPort, asker: str) -> Drafter:
    """The inner drafter. Raises `CapabilityError` where it cannot be asked about texts that never come to be."""
    inner, method = build_nested(described, port)
    if not inner.traits.rewinds:
        raise CapabilityError(
            f"{asker} asks its inner drafter about texts that may turn out otherwise, and {method.name!r} cannot go "
            "back here: choose a drafter whose guesses look at the tokens alone (a model on a GPU: with exact=True)"
        )
    return inner


@dataclass(slots=True)
class Standing:
    """The guess that is ready behind one sequence's text."""

    length: int = 0  # of the text that the guess continues
    guess: AheadGuess = field(default_factory=AheadGuess)
    budget: Budget = field(default_factory=lambda: Budget(depth=0))  # of the last round

    def piece(self, count: int) -> Budget:
        """The budget of `count` tokens more, whose survival is multiplied onto that of the guess so far."""
        least = self.budget.survival and min(1.0, self.budget.survival / max(self.guess.survival(self.budget), 1e-30))
        return replace(self.budget, depth=count, nodes=None, survival=least)

    def follow(self, seq: Sequence) -> None:
        """The text has grown: keep the rest of the guess if it came true, and drop all of it otherwise."""
        new = seq.tokens[self.length :]
        if self.guess.tokens[: len(new)] == new:
            self.guess.drop(len(new))
        else:
            self.guess = AheadGuess()
        self.length = len(seq.tokens)


class AheadDrafter:
    """Proposes the guess that is ready, and never drafts while the target waits.

    `missing(standing, num_proposed)`: how many more tokens to guess now, 0 for enough; asked again after each piece.
    """

    needs = Needs()

    def __init__(self, inner: Drafter, missing: Callable[[Standing, int], int], *, patient: bool) -> None:
        self.inner = inner
        self._missing = missing
        self._patient = patient  # goes on when the pass is over
        self._standing: dict[int, Standing] = {}
        self.num_reached = self.num_survived = 0  # whole drafts accepted; of these, what stood behind went on

    @property
    def traits(self) -> Traits:
        """It works beside the pass."""
        return Traits(ahead=self.ahead, inner=(self.inner,))

    def begin(self, seqs: Seq[Sequence]) -> None:
        self.inner.begin(seqs)
        self._standing |= {seq.id: Standing() for seq in seqs}

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """The guess made during the last pass, if it has come true so far; after a miss, the pending token alone."""
        drafts = []
        for seq, budget in zip(seqs, budgets, strict=True):
            standing = self._standing[seq.id]
            standing.follow(seq)
            standing.budget = budget
            drafts.append(standing.guess.draft(seq.pending, budget))
        return drafts

    def ahead(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> list[Continuation | None]:
        """Draft behind the guesses that are ready."""
        self._grow(seqs, drafts, is_over)
        return [
            self._standing[seq.id].guess.behind(draft.num_nodes - 1) for seq, draft in zip(seqs, drafts, strict=True)
        ]

    def _grow(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> None:
        while self._patient or not is_over():
            asked = []
            for seq, draft in zip(seqs, drafts, strict=True):
                standing = self._standing[seq.id]
                if not standing.budget.depth or standing.guess.is_cut(standing.budget):
                    continue
                if (count := self._missing(standing, draft.num_nodes - 1)) > 0:
                    asked.append((standing, imagine(seq, standing.guess.tokens), count))
            if not asked:
                return
            budgets = [standing.piece(count) for standing, _, count in asked]
            try:
                drafted = self.inner.propose([text for _, text, _ in asked], budgets)
            except CacheFullError:
                return  # the guess so far is judged all the same: whether more was asked depends on its tokens alone
            found = [first_path(draft) for draft in drafted]
            for (standing, _, _), more in zip(asked, found, strict=True):
                standing.guess.extend(more)
            if not any(more.tokens for more in found):
                return  # no room

    def observe(self, seen: Seq[Seen]) -> None:
        """Count how often the guess behind a wholly accepted draft goes on; the rest is in the texts."""
        for one in seen:
            if one.draft is None or one.verdict is None or one.draft.continuation is None:
                continue
            if len(one.verdict.path) == one.draft.num_nodes - 1:
                self.num_reached += 1
                self.num_survived += one.verdict.token == one.draft.continuation.token

    def end(self, seqs: Seq[Sequence]) -> None:
        """Drop the guesses of these texts; they were never in the target's cache."""
        self.inner.end(seqs)
        for seq in seqs:
            self._standing.pop(seq.id, None)
