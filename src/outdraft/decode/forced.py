"""What masks do for drafts: text without a choice is drafted for free, and what a constraint forbids is not scored.

    output   {"na        the schema leaves one continuation        me": "
    draft    P m e " :   its tokens, as a deterministic guess       judged like any guess, so nothing is assumed

So is the rest of a request's `forced_prefix`. For such a round neither policy nor drafter is asked. Where one token
alone is forced, the drafter is asked, for it may know more; if it does not, that token is drafted. Of a forced round
the drafter sees rows that were read, as of a prompt: nothing looks like a guess of its own that was kept. The policy
sees nothing, for it would learn how often a guess is right from guesses that cannot be wrong.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch

from outdraft.core.constraint import Form
from outdraft.core.decisions import Decisions
from outdraft.core.draft import Draft, chain, host_tree
from outdraft.core.drafter import Seen
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.sequence import Sequence
from outdraft.core.verdict import Verdict
from outdraft.options.foreign import anything_but_an_interrupt

FORCED = "forced"  # who such a draft is said to be of
MOST_FORCED = 32  # tokens of one draft: rows of a pass are not free, whatever they hold
# Fewer are not worth more than a guess of the drafter's, which begins with them and goes on; a look-up's seldom does.
LEAST_FORCED = {False: 4, True: 2}  # whether a drafter that looks up is asked -> tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Undrafted(Draft):
    """A chain that no drafter guessed: what a mask forces, or the pending token alone where it had no room to."""


def undrafted(tokens: list[int]) -> Undrafted:
    """The pending token, and what is known to follow it."""
    return Undrafted(tokens=torch.tensor(tokens, dtype=torch.long), parents=torch.arange(-1, len(tokens) - 1))


def forced_draft(seq: Sequence, *, least: int) -> Draft | None:
    """The only continuation that its prefix or its constraint leaves, as a chain; None where it has less than `least`
    tokens, or no guess is wanted. A constraint that fails says so in the pass, where it ends its own request alone."""
    rest = seq.request.params.prefix_ids[seq.num_output :]
    if not rest and seq.constraint is None:
        return None
    is_forced = rest or isinstance(seq.constraint, Form)
    if not (seq.turn.drafts and is_forced) or (most := seq.request.most_drafted) == 0:
        return None
    most = min(MOST_FORCED, seq.room - 1, MOST_FORCED if most is None else most)
    try:
        known = rest if rest or not isinstance(seq.constraint, Form) else seq.constraint.forced()
        tokens = list(known[:most]) if most >= least else []
    except anything_but_an_interrupt():
        return None
    if len(tokens) < least:
        return None
    return undrafted([seq.pending, *tokens])


def is_dear(seq: Sequence) -> bool:
    """Whether each mask of its constraint takes so long that a guess, whose every node needs one, would hold up the
    other texts of the pass."""
    return bool(getattr(seq.constraint, "is_dear", False))


def fitted(seq: Sequence, draft: Draft, *, cuts: bool, fills: bool) -> Draft:
    """A drafter's guess under the sequence's constraint.

    `cuts`: without what the constraint forbids. `fills`: one forced token, where nothing is guessed.
    """
    try:
        draft = without_forbidden(seq, draft) if cuts else draft
        is_silent = fills and draft.num_nodes == 1
    except anything_but_an_interrupt():  # of the constraint, or of a guess that is none: the pass finds out of whom
        return draft
    return (forced_draft(seq, least=1) if is_silent else None) or draft


def without_forbidden(seq: Sequence, draft: Draft) -> Draft:
    """A deterministic chain up to the first token that the constraint forbids; any other draft as it is.

    What was drawn is never cut: its distribution is masked already, and a cut would change it.
    """
    if seq.constraint is None or draft.num_nodes == 1 or not _is_plain_chain(draft):
        return draft
    path = host_tree(draft).tokens[1:]
    right = (bool(seq.constraint.allowed(path[:depth])[token]) for depth, token in enumerate(path))
    num_nodes = 1 + next((depth for depth, is_right in enumerate(right) if not is_right), len(path))
    if num_nodes == draft.num_nodes:
        return draft
    sure = None if draft.confidence is None else draft.confidence[:num_nodes]
    return replace(draft, tokens=draft.tokens[:num_nodes], parents=draft.parents[:num_nodes], confidence=sure)


def _is_plain_chain(draft: Draft) -> bool:
    special = (draft.q, draft.roles, draft.mask, draft.embeds, draft.resume, draft.continuation)
    is_plain = all(one is None for one in special) and draft.tokens.device.type == "cpu"
    return is_plain and host_tree(draft).is_chain


def as_planned(events: Seq[StepEvent], decisions: Decisions) -> list[StepEvent] | None:
    """What the policy may learn from: rounds that did not fail and went as planned, with the times of the whole step.

    A round that was forced, or that its request decided, did not. None where that is true of all. The others share the
    time of those that are left out, for a pass costs much the same without a few of its rows.
    """
    planned, num_told = list[StepEvent](), 0
    for event, one in zip(events, decisions.each, strict=True):
        num_told += one.is_planned
        if one.is_planned and event.error is None:
            planned.append(event)
    if not num_told:
        return None
    scale = len(events) / num_told
    return planned if scale == 1 else [replace(event, times=_scaled(event.times, scale)) for event in planned]


def _scaled(times: StepTimes, scale: float) -> StepTimes:
    return replace(times, draft=times.draft * scale, target=times.target * scale, rest=times.rest * scale)


def as_read(one: Seen) -> Seen:
    """What drafters may see of a forced round: rows of a text that was read up to its new pending token."""
    assert one.logits is not None
    last = one.num_committed - 1  # the node of the last row, for the draft is a chain and nothing was read before it
    tokens = one.seq.tokens[one.start + last :]
    return replace(
        one, draft=chain(tokens[:1]), logits=one.logits[last : last + 1], verdict=Verdict((), tokens[1], bonus=True)
    )
