"""Who guesses in a round: a mask that leaves no choice, or the drafter within the policy's budgets.

each text   its prefix or grammar leaves one continuation (`forced.py`)   that continuation, and no drafter is asked
            else                            policy -> budget -> drafter   its guess, without what a grammar forbids
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.core.adoption import Adoption
from outdraft.core.decisions import Decision
from outdraft.core.draft import Draft
from outdraft.core.policy import Budget, Cut
from outdraft.core.sequence import Sequence
from outdraft.decode.asked import as_asked
from outdraft.decode.fit import first_nodes
from outdraft.decode.forced import FORCED, LEAST_FORCED, Undrafted, fitted, forced_draft, is_dear, undrafted
from outdraft.decode.parts import Parts
from outdraft.options.errors import CacheFullError


def guess(seqs: Seq[Sequence], parts: Parts) -> dict[int, Decision]:
    """By id, of the sequences whose prompt is read and whose drafter has not failed."""
    found, asked = dict[int, Decision](), list[Sequence]()
    for seq in seqs:
        if not (seq.prefilled and seq.speculates):
            continue
        least = LEAST_FORCED[parts.has_peeking]
        if seq.masks_by_history and (forced := forced_draft(seq, least=least)) is not None:
            found[seq.id] = _forced(seq, forced)
        else:
            asked.append(seq)
    if asked:
        _propose(asked, parts, found)
    return found


def _propose(seqs: Seq[Sequence], parts: Parts, found: dict[int, Decision]) -> None:
    """Find the drafter's guesses; none this time where its own rows find no room."""
    planned = parts.policy.plan(seqs)
    budgets = list(map(_budget, seqs, planned))
    if parts.reads_confidence:  # whatever the policy asks: it must not change what the rule reads
        budgets = [replace(budget, confident=True) for budget in budgets]
    try:
        drafts = parts.drafter.propose(seqs, budgets)
    except CacheFullError:
        drafts = [undrafted([seq.pending]) for seq in seqs]
    if parts.traits.ahead is None:  # which goes on behind whole guesses
        drafts = _cut(seqs, budgets, drafts)
    version_of = _version_by(parts.adoption)
    for seq, plan, budget, draft in zip(seqs, planned, budgets, drafts, strict=True):
        if seq.constraint is not None:
            draft = fitted(seq, draft, cuts=parts.has_peeking, fills=parts.traits.ahead is None)
        if isinstance(draft, Undrafted):
            found[seq.id] = _forced(seq, draft)
            continue
        found[seq.id] = Decision(
            seq_id=seq.id,
            start=seq.num_cached,
            turn=seq.turn,
            draft=draft,
            budget=budget,
            drafted_by=parts.held.name_of(budget.arm),
            draft_version=version_of(seq.id),
            is_planned=budget is plan or is_as_planned(plan, budget),
        )


def _cut(seqs: Seq[Sequence], budgets: Seq[Budget], drafts: list[Draft]) -> list[Draft]:
    """The drafts without the nodes that their policy does not have verified."""
    asked: dict[Cut, list[int]] = {}
    for i, (budget, draft) in enumerate(zip(budgets, drafts, strict=True)):
        if budget.cut is not None and _can_cut(draft):
            asked.setdefault(budget.cut, []).append(i)
    found = list(drafts)
    for cut, rows in asked.items():
        sizes = cut([seqs[i] for i in rows], [drafts[i] for i in rows])
        for i, size in zip(rows, sizes, strict=True):
            found[i] = first_nodes(drafts[i], size)
    return found


def _can_cut(draft: Draft) -> bool:
    """Whether its first nodes are a guess."""
    whole = isinstance(draft, Undrafted) or draft.mask is not None or draft.embeds is not None
    return draft.num_nodes > 1 and not whole


def _version_by(adoption: Adoption | None) -> Callable[[int], int]:
    """Of a sequence (its id), the version of the weights that draft for it now."""
    if adoption is None:
        return lambda seq: 0
    return adoption.of or (lambda seq: adoption.version)


def _forced(seq: Sequence, draft: Draft) -> Decision:
    """No drafter made it."""
    return Decision(
        seq_id=seq.id, start=seq.num_cached, turn=seq.turn, draft=draft, drafted_by=FORCED, is_planned=False
    )


def _budget(seq: Sequence, planned: Budget) -> Budget:
    """As its request asks; without a guess, for want of memory or because masks are dear."""
    guesses = seq.turn.drafts and (seq.constraint is None or not is_dear(seq))
    return as_asked(seq, planned) if guesses else Budget(depth=0)


def is_as_planned(planned: Budget, budget: Budget) -> bool:
    """Whether the drafter was asked as the policy had planned; where nothing is guessed, it does not matter of whom."""
    return (budget.arm, budget.depth) == (planned.arm, planned.depth) or not (budget.depth or planned.depth)
