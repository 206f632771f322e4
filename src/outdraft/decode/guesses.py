"""Who guesses in a round: a mask that leaves no choice, or the drafter within the policy's budgets.

each text   its prefix or grammar leaves one continuation (`forced.py`)   that continuation, and no drafter is asked
            else                            policy -> budget -> drafter   its guess, without what a grammar forbids
"""

from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.core.draft import Draft, chain
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.decode.asked import as_asked
from outdraft.decode.forced import LEAST_BESIDE_LOOK_UPS, LEAST_FORCED, fitted, forced_draft, is_dear
from outdraft.decode.parts import Parts
from outdraft.options.errors import CacheFullError


def guess(seqs: Seq[Sequence], parts: Parts) -> dict[int, Draft]:
    """By id, of the sequences whose prompt is read and whose drafter has not failed."""
    ready = [seq for seq in seqs if seq.prefilled and seq.speculates]
    least = LEAST_BESIDE_LOOK_UPS if parts.has_peeking else LEAST_FORCED
    forced = {seq.id: forced_draft(seq, least=least) for seq in ready}
    guesses = {i: one for i, one in forced.items() if one is not None}
    asked = [seq for seq in ready if seq.id not in guesses]
    for seq, one in zip(asked, _propose(asked, parts) if asked else (), strict=True):
        guesses[seq.id] = fitted(seq, one, cuts=parts.has_peeking, fills=parts.traits.ahead is None)
    return guesses


def overrule(seqs: Seq[Sequence], guesses: Seq[Draft], fitting: Seq[Draft]) -> None:
    """The policy learns nothing from a guess that memory has cut."""
    for seq, one, fits in zip(seqs, guesses, fitting, strict=True):
        seq.turn.is_overruled = seq.turn.is_overruled or fits.num_nodes < one.num_nodes


def _propose(seqs: Seq[Sequence], parts: Parts) -> list[Draft]:
    """The drafter's guesses; none this time where its own rows find no room."""
    budgets = [_budget(seq, one) for seq, one in zip(seqs, parts.policy.plan(seqs), strict=True)]
    if parts.reads_confidence:  # whatever the policy asks: it must not change what the rule reads
        budgets = [replace(budget, confident=True) for budget in budgets]
    for seq, budget in zip(seqs, budgets, strict=True):
        seq.turn.drafted_by = parts.held.name_of(budget.arm)
    try:
        return parts.drafter.propose(seqs, budgets)
    except CacheFullError:
        for seq, budget in zip(seqs, budgets, strict=True):
            seq.turn.is_overruled = seq.turn.is_overruled or budget.depth > 0
        return [chain([seq.pending]) for seq in seqs]


def _budget(seq: Sequence, planned: Budget) -> Budget:
    """As its request asks. Without a guess, for want of memory or because masks are dear, the policy learns nothing if
    it had planned one."""
    if seq.turn.drafts and not is_dear(seq):
        return as_asked(seq, planned)
    seq.turn.is_overruled = planned.depth > 0
    return Budget(depth=0)
