"""Carry out a verdict: emit its tokens one by one up to the end of the text, and keep exactly their cache rows.

Of m emitted tokens the last is the new pending one, so the pass leaves (prompt rows) + m rows in the cache: the old
pending token and the first m - 1 accepted nodes. An end inside the accepted run drops the rest of the run.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from torch import Tensor

from outdraft.core.decisions import Decisions
from outdraft.core.draft_tree import tell_tree
from outdraft.core.drafter import Seen
from outdraft.core.events import Source, StepEvent, StepTimes
from outdraft.core.logprobs import TokenLogprobs
from outdraft.core.packing import PackedDrafts
from outdraft.core.rows_of import RowsOf
from outdraft.core.sequence import Sequence
from outdraft.core.target import Target, TargetOutput
from outdraft.core.verdict import Verdict
from outdraft.decode.about_guess import about_guess
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.sampling.logprobs import token_logprobs
from outdraft.sampling.masks import allows

Fail = Callable[[Sequence, BaseException], StepEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A pass and the rule's verdicts on it. Nothing of it is kept yet: it may be dropped, and run again."""

    packed: PackedDrafts
    decisions: Decisions
    scored: TargetOutput
    p: Tensor  # [M, V]
    verdicts: Seq[Verdict]  # one for each draft that is not None, in order
    times: StepTimes  # of the whole pass, without what comes behind it
    until: float  # the clock when the pass was over
    prompt_logprobs: Seq[tuple[TokenLogprobs, ...]] = ()  # [B] of the prompt tokens that each one's rows predict


def commit(judged: Judged, target: Target, fail: Fail | None = None) -> tuple[list[StepEvent], list[Seen]]:
    """Apply one verdict to each sequence that had a draft; returns what happened and what the drafter may see.

    `fail` gets a sequence whose commit raises and makes its event, and the others go on; None: it raises. Such a
    sequence has the tokens that it had before, which are those that its caller receives.
    """
    remaining = iter(judged.verdicts)
    events: list[StepEvent] = []
    seen: list[Seen] = []
    for i, (seq, draft) in enumerate(zip(judged.packed.seqs, judged.packed.drafts, strict=True)):
        verdict, num_tokens = next(remaining) if draft is not None else None, len(seq.tokens)
        try:
            event, one = _commit(judged, i, verdict, target)
        except anything_but_an_interrupt() as error:
            if fail is None:
                raise
            del seq.tokens[num_tokens:]
            events.append(fail(seq, error))
        else:
            events.append(event)
            if one.num_committed:
                seen.append(one)
    return events, seen


def _commit(judged: Judged, i: int, verdict: Verdict | None, target: Target) -> tuple[StepEvent, Seen]:
    """Sequence i's part; `verdict` is None where a prompt chunk did not reach the pending token."""
    packed, scored = judged.packed, judged.scored
    seq, draft, start, certain = packed.seqs[i], packed.drafts[i], packed.seqs[i].num_cached, packed.num_certain[i]
    keep = list(range(certain))
    if verdict is None:
        event = StepEvent(seq_id=seq.id, num_certain=certain or packed.num_beside[i], variant=seq.variant)
    else:
        event = _emit(judged, i, verdict)
        nodes = (0, *verdict.path)[: len(event.tokens)]
        keep += [certain + node for node in nodes] if certain else nodes
    target.commit(seq, keep)
    seq.num_cached = start + len(keep)
    if judged.prompt_logprobs and (told := judged.prompt_logprobs[i]):
        seq.num_prompt_scored += len(told)
        event = replace(event, prompt_logprobs=told)
    seen = Seen(
        seq=seq,
        start=start,
        num_committed=len(keep),
        hidden=RowsOf(scored.hidden, [packed.row_starts[i] + row for row in keep]) if scored.hidden else {},
        draft=draft,
        logits=scored.logits[packed.node_slice(i)] if draft is not None else None,
        verdict=verdict,
    )
    return event, seen


def _emit(judged: Judged, i: int, verdict: Verdict) -> StepEvent:
    """Append the verdict's tokens to sequence i until the text ends; describe what was appended."""
    packed, logits, p, decision = judged.packed, judged.scored.logits, judged.p, judged.decisions.each[i]
    seq, draft, tree = packed.seqs[i], packed.drafts[i], packed.trees[i]
    assert draft is not None and tree is not None
    first, path = packed.node_starts[i], verdict.path
    guess = about_guess(draft, tree, verdict) if len(tree.parents) > 1 else {}
    last = Source.PLAIN if not guess.get("num_draft_tokens") else Source.BONUS if verdict.bonus else Source.RECOVERED
    run = [tree.tokens[node] for node in path] if path else []
    run.append(verdict.token)

    tokens: list[int] = []
    logprobs, reason, masks = [], None, bool(path) and seq.masks_by_history
    for node, token in zip((0, *path), run, strict=True):
        if tokens and masks and seq.masks_by_history and not allows(seq, token, logits.shape[-1]):
            break  # drawn where nothing may follow: the next pass reports that of the tokens before it
        if seq.request.params.logprobs is not None:
            logprobs.append(token_logprobs(seq, token, logits[first + node], p[first + node]))
        tokens.append(token)
        reason = seq.extend(token)
        if reason is not None:
            break
    sources = [Source.ACCEPTED] * len(path) + [last]
    return StepEvent(
        seq_id=seq.id,
        tokens=tuple(tokens),
        sources=tuple(sources[: len(tokens)]),
        logprobs=tuple(logprobs),
        finish_reason=reason,
        variant=seq.variant,
        num_certain=packed.num_certain[i] or packed.num_beside[i],
        drafted_by=decision.drafted_by if guess.get("num_draft_tokens") else "",
        draft_version=decision.draft_version,
        num_nodes=len(tree.parents),
        num_replayed=judged.scored.replayed.get(i),
        draft_tree=tell_tree(draft, tree, verdict) if seq.request.return_draft_tree else None,
        **guess,
    )
