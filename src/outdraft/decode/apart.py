"""A step in which an error ends only the sequence that caused it.

    draft | judge all                      nothing is kept before the verdicts stand, so a round may be run again
          | raised: judge each by itself   with the guess that it has
          | raised again: without a guess  the guess was at fault: this sequence goes on with plain decoding
          | raised again: the request ends with an error (a prompt's chunk: at once, unless it found no room)

Where rows are exact, or guarded, a text does not depend on who else is in the pass, so the others' texts are what they
would have been.
"""

import logging
from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.core.decisions import Decision, Decisions
from outdraft.core.draft import chain
from outdraft.core.drafter import inner
from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence
from outdraft.decode.parts import Parts
from outdraft.decode.shield import ShieldedDrafter
from outdraft.decode.step import judge, keep
from outdraft.options.errors import CacheFullError, DecodingError, OutdraftError
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.options.shown import told

_log = logging.getLogger(__name__)


class Isolated:
    """A step that raises nothing (`decode.step.Apart`). Drafter and policy are shielded (`decode/shield.py`)."""

    def fail(self, seq: Sequence, error: BaseException) -> StepEvent:
        return fail(seq, error)

    def again(self, seqs: Seq[Sequence], decisions: Decisions, parts: Parts, error: BaseException) -> list[StepEvent]:
        if len(seqs) == 1:
            return [_without_guess(seqs[0], decisions.each[0], parts, error)]
        return [_alone(seq, one, parts) for seq, one in zip(seqs, decisions.each, strict=True)]


def fail(seq: Sequence, error: BaseException, *, alone: bool = True) -> StepEvent:
    """End a request with what went wrong; what is no error of ours goes to the log with its traceback.

    `alone`: the other requests go on.
    """
    seq.finish_reason = "error"
    if not isinstance(error, OutdraftError):
        _log.error("a request ended, because decoding it broke", exc_info=error)
        others = "other requests go on" if alone else "the other requests of the batch ended with it"
        broken = DecodingError(f"decoding broke after {seq.num_output} tokens: {told(error)}; {others}")
        broken.__cause__ = error
        error = broken
    _drop_frames(error)
    return StepEvent(seq_id=seq.id, finish_reason="error", error=error, variant=seq.variant)


def _drop_frames(error: BaseException) -> None:
    """Of the error and of all that led to it: a caller that keeps it must not keep a model."""
    seen: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = None
            links += [link.__cause__, link.__context__]


def _alone(seq: Sequence, decision: Decision, parts: Parts) -> StepEvent:
    try:
        judged = judge([seq], Decisions(each=(decision,), is_whole=False), parts)
    except anything_but_an_interrupt() as error:
        return _without_guess(seq, decision, parts, error)
    return keep(judged, parts, fail)[0]


def _without_guess(seq: Sequence, decision: Decision, parts: Parts, error: BaseException) -> StepEvent:
    """Once more with the pending token alone, unless that was all there was. The guess itself is not looked at.

    A pass that found no room is run again either way: what a larger pass had taken is there now.
    """
    if not (seq.prefilled and seq.speculates) and not isinstance(error, CacheFullError):
        return fail(seq, error)
    plain = replace(decision, draft=chain([seq.pending]), is_planned=False)  # and the policy learns nothing from it
    try:
        judged = judge([seq], Decisions(each=(plain,), is_whole=False), parts)
    except anything_but_an_interrupt() as still:
        return fail(seq, still)
    # full memory is no fault of the guess: later there is room again
    if not isinstance(error, CacheFullError):
        for shield in inner(parts.drafter):
            if isinstance(shield, ShieldedDrafter):
                shield.give_up([seq], error)
    return keep(judged, parts, fail)[0]
