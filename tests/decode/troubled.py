"""A drafter that keeps its promises until it meets the culprit."""

from dataclasses import replace

import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Traits
from tests.helpers.fakes import TableTarget, oracle

CULPRIT = 2  # the id of the sequence that it breaks at


class Boom(Exception):
    """What a plug-in may raise."""


BAD_GUESSES = ("parents", "ids", "count", "empty", "other", "none", "text", "lists", "stale", "width")


class Troubled:
    """The oracle, whose one verb raises for the culprit from the second time on."""

    def __init__(self, table: TableTarget, verb: str) -> None:
        self.inner, self.verb, self.calls, self.ended = oracle(table.next_logits), verb, 0, []
        self.needs = self.inner.needs
        self.traits = Traits(ahead=self.ahead)

    def _meet(self, verb, seqs):
        if verb == self.verb and any(seq.id == CULPRIT for seq in seqs):
            self.calls += 1
            if self.calls > (verb not in ("begin", "end")):
                raise Boom(verb)

    def begin(self, seqs):
        self.inner.begin(seqs)
        self._meet("begin", seqs)

    def propose(self, seqs, budgets):
        self._meet("propose", seqs)
        drafts = self.inner.propose(seqs, budgets)
        if self.verb in BAD_GUESSES:
            at = next((i for i, seq in enumerate(seqs) if seq.id == CULPRIT), None)
            if at is not None:
                draft = drafts[at]
                drafts[at] = {
                    "parents": Draft(tokens=draft.tokens, parents=draft.parents.flip(0)),
                    "ids": chain([int(draft.tokens[0]), 10**6]),
                    "empty": Draft(tokens=draft.tokens[:0], parents=draft.parents[:0]),
                    "other": chain([(int(draft.tokens[0]) + 1) % 11, 3]),
                    "none": None,
                    "text": "a guess",
                    "lists": Draft(tokens=draft.tokens.tolist(), parents=draft.parents.tolist()),
                    "stale": chain([(int(draft.tokens[0]) + 1) % 11]),
                    "width": replace(chain([int(draft.tokens[0])]), q=torch.ones(1, 5) / 5, mask=torch.ones(3, 3)),
                    "count": draft,
                }[self.verb]
                if self.verb == "count":
                    drafts.pop(at)
        return drafts

    def ahead(self, seqs, drafts, is_over):
        self._meet("ahead", seqs)
        return [None] * len(drafts)

    def observe(self, seen):
        self._meet("observe", [one.seq for one in seen])
        self.inner.observe(seen)

    def end(self, seqs):
        self.ended += [seq.id for seq in seqs]
        self.inner.end(seqs)
        self._meet("end", seqs)
