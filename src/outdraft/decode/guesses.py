"""Who guesses in a round: a mask that leaves no choice, or the drafter within the policy's budgets.

each text   its prefix or grammar leaves one continuation (`forced.py`)   that continuation, and no drafter is asked
            else                            policy -> budget -> drafter   its guess, without what a grammar forbids
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

from outdraft.core.decisions import Decision
from outdraft.core.draft import Draft
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.decode.asked import as_asked
from outdraft.decode.forced import FORCED, LEAST_FORCED, Undrafted, fitted, forced_draft, is_dear, undrafted
from outdraft.decode.parts import Parts
from outdraft.options.errors import CacheFullError


def guess(seqs: Seq[Sequence], parts: Parts) -> dict[int, Decision]:
    """By id, of the sequences whose prompt is read and whose drafter has not failed."""
    ready = [seq for seq in seqs if seq.prefilled and seq.speculates]
    forced = [(seq, forced_draft(seq, least=LEAST_FORCED[parts.has_peeking])) for seq in ready]
    found = {seq.id: _decided(seq, one) for seq, one in forced if one is not None}
    asked = [seq for seq in ready if seq.id not in found]
    return found | _propose(asked, parts) if asked else found


def _propose(seqs: Seq[Sequence], parts: Parts) -> dict[int, Decision]:
    """The drafter's guesses; none this time where its own rows find no room."""
    planned = parts.policy.plan(seqs)
    budgets = [_budget(seq, one) for seq, one in zip(seqs, planned, strict=True)]
    if parts.reads_confidence:  # whatever the policy asks: it must not change what the rule reads
        budgets = [replace(budget, confident=True) for budget in budgets]
    try:
        drafts = parts.drafter.propose(seqs, budgets)
    except CacheFullError:
        drafts = [undrafted([seq.pending]) for seq in seqs]
    version = 0 if parts.adoption is None else parts.adoption.version
    return {
        seq.id: _decided(
            seq,
            fitted(seq, draft, cuts=parts.has_peeking, fills=parts.traits.ahead is None),
            budget=budget,
            drafted_by=parts.held.name_of(budget.arm),
            draft_version=version,
            is_planned=is_as_planned(plan, budget),
        )
        for seq, plan, budget, draft in zip(seqs, planned, budgets, drafts, strict=True)
    }


def _decided(seq: Sequence, draft: Draft, **by: Any) -> Decision:
    """`by`: who made the draft, unless no drafter did."""
    if isinstance(draft, Undrafted):
        by = {"drafted_by": FORCED, "is_planned": False}
    return Decision(seq_id=seq.id, start=seq.num_cached, turn=seq.turn, draft=draft, **by)


def _budget(seq: Sequence, planned: Budget) -> Budget:
    """As its request asks; without a guess, for want of memory or because masks are dear."""
    return as_asked(seq, planned) if seq.turn.drafts and not is_dear(seq) else Budget(depth=0)


def is_as_planned(planned: Budget, budget: Budget) -> bool:
    """Whether the drafter was asked as the policy had planned; where nothing is guessed, it does not matter of whom."""
    return (budget.arm, budget.depth) == (planned.arm, planned.depth) or not (budget.depth or planned.depth)
