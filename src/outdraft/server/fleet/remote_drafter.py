"""A drafter whose network is elsewhere: it asks `Drafting` for tokens behind each text, by the tokens alone.

`Drafting` is `DraftService` in this process, or the same behind an actor of Ray (`on_ray/drafter.py`). Where it has
died, the engine's shield lets the request go on with plain decoding, and the text is the same.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any, Protocol
from uuid import uuid4

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.server.fleet.draft_service import DraftAsk

_SHAPE = ("temperature", "top_p", "top_k", "min_p", "typical_p")  # of a distribution, beyond its logits


class Drafting(Protocol):
    """Who drafts on another machine: what the drafter here asks of it."""

    def draft(self, asks: Seq[DraftAsk]) -> list[list[int]]:
        """The next tokens behind each text."""

    def end(self, text_ids: Seq[str]) -> None:
        """These texts are over."""


class RemoteDrafter:
    """Chains of tokens without probabilities. Only what a text has grown by is sent."""

    needs = Needs()
    traits = Traits()

    def __init__(self, drafting: Drafting) -> None:
        self._drafting = drafting
        self._own = uuid4().hex  # others may ask there, too
        self._sent: dict[int, int] = {}  # tokens of each text that are known there

    def begin(self, seqs: Seq[Sequence]) -> None:
        """It is asked for the first time in the first round."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """All texts in one call, so that they are drafted at the same time."""
        depths = [_depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        asks = {i: self._ask(seqs[i], depth) for i, depth in enumerate(depths) if depth}
        for i in asks:
            self._sent.setdefault(seqs[i].id, 0)  # a call that fails, or is too late, may have opened them there
        found = dict(zip(asks, self._drafting.draft(list(asks.values())), strict=True)) if asks else {}
        for i in asks:
            self._sent[seqs[i].id] = len(seqs[i].tokens)
        return [chain([seq.pending, *found.get(i, [])]) for i, seq in enumerate(seqs)]

    def observe(self, seen: Seq[Seen]) -> None:
        """What was kept stands in `seq.tokens`, and is sent when the next guess is asked for."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """They are closed there, too."""
        known = [self._name(seq) for seq in seqs if self._sent.pop(seq.id, None) is not None]
        if known:
            self._drafting.end(known)

    def _name(self, seq: Sequence) -> str:
        return f"{self._own}/{seq.id}"

    def _ask(self, seq: Sequence, depth: int) -> DraftAsk:
        start = self._sent.get(seq.id, 0)
        return DraftAsk(
            text_id=self._name(seq), start=start, tokens=tuple(seq.tokens[start:]), depth=depth, sampling=_sampling(seq)
        )


def _sampling(seq: Sequence) -> Mapping[str, Any]:
    """How the draft model draws: with the target's own noise where the rule couples, greedily elsewhere."""
    params = seq.request.params
    if not seq.coupled or params.greedy:
        return {}
    return {"seed": seq.seed, **{name: getattr(params, name) for name in _SHAPE}}


def _depth(seq: Sequence, budget: Budget) -> int:
    most = budget.depth if budget.nodes is None else min(budget.depth, budget.nodes)
    return max(0, min(most, seq.max_len - len(seq.tokens)))
