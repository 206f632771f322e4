"""One step of speculative decoding: guess, score all guesses in one target pass, keep the accepted tokens.

    decide  a guess for each text (`guesses.py`), as far as memory has room; without one the pending token alone
    judge   one pass over all of them, logits to distributions, the rule's verdicts: nothing has changed yet
    keep    the verdicts made true, token by token, and what drafter and policy may learn of the round

Every method and the plain baseline run through this one function (Leviathan, Kalman and Matias, "Fast inference from
transformers via speculative decoding", 2022, https://arxiv.org/abs/2211.17192; Chen et al., "Accelerating large
language model decoding with speculative sampling", 2023, https://arxiv.org/abs/2302.01318).
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from time import perf_counter
from typing import Protocol

import torch

from outdraft.core.decisions import Decision, Decisions
from outdraft.core.draft import chain
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.packing import PackedDrafts, pack
from outdraft.core.sequence import Sequence
from outdraft.core.target import TargetOutput
from outdraft.core.verifier import Verifier
from outdraft.decode.commit import Fail, Judged, commit
from outdraft.decode.distributions import target_distributions
from outdraft.decode.executor import RunAhead
from outdraft.decode.fit import fit
from outdraft.decode.forced import Undrafted, as_planned, as_read
from outdraft.decode.guesses import guess
from outdraft.decode.parts import Parts
from outdraft.decode.prompt_logprobs import score_prompts
from outdraft.options.errors import CacheFullError
from outdraft.options.foreign import anything_but_an_interrupt


class Apart(Protocol):
    """What a step does where something raises, in place of raising it too (`decode/apart.py`)."""

    def fail(self, seq: Sequence, error: BaseException) -> StepEvent:
        """End this request with the error."""

    def again(self, seqs: Seq[Sequence], decisions: Decisions, parts: Parts, error: BaseException) -> list[StepEvent]:
        """The round once more, each sequence by itself."""


@torch.inference_mode()
def step(
    seqs: Seq[Sequence], parts: Parts, apart: Apart | None = None, decisions: Decisions | None = None
) -> list[StepEvent]:
    """Advance every sequence by one target pass: a prompt chunk, or at least one token. One event each.

    `apart`: an error ends only the sequence that caused it. Drafter and policy are shielded then. `decisions`: about
    these sequences, which may have been made elsewhere; None: they are made here.
    """
    decisions = decide(seqs, parts) if decisions is None else decisions
    for seq, one in zip(seqs, decisions.each, strict=True):
        seq.turn = one.turn
    try:
        judged = judge_what_fits(seqs, decisions, parts)
    except anything_but_an_interrupt() as error:
        if apart is None:
            raise
        return apart.again(seqs, decisions, parts, error)
    return keep(judged, parts, apart.fail if apart is not None else None)


@torch.inference_mode()
def decide(seqs: Seq[Sequence], parts: Parts) -> Decisions:
    """A guess for each sequence, as far as memory has room; while a prompt is being read there is nothing to guess."""
    began = perf_counter()
    found = guess(seqs, parts) if parts.guesses else {}
    each = [
        found.get(seq.id) or Decision(seq_id=seq.id, start=seq.num_cached, turn=seq.turn, draft=chain(seq.tokens[-1:]))
        for seq in seqs
    ]
    fitting = each if parts.room.capacity is None else fit(seqs, each, parts.room)
    return Decisions(each=tuple(fitting), seconds=perf_counter() - began, is_whole=fitting is each)


def judge_what_fits(seqs: Seq[Sequence], decisions: Decisions, parts: Parts) -> Judged:
    """`judge`; once more with the pending tokens alone, should memory be full all the same."""
    try:
        return judge(seqs, decisions, parts)
    except CacheFullError:
        if all(one.draft.num_nodes == 1 for one in decisions.each):
            raise
    each = tuple(one.cut(chain([seq.pending])) for seq, one in zip(seqs, decisions.each, strict=True))
    return judge(seqs, replace(decisions, each=each, is_whole=False), parts)


def judge(seqs: Seq[Sequence], decisions: Decisions, parts: Parts) -> Judged:
    """Score all guesses in one pass and ask the rule. No sequence has changed when this returns or raises."""
    began = perf_counter()
    packed = pack(seqs, [one.draft for one in decisions.each])
    taps, drafted = taps_for(packed, parts), perf_counter()
    if parts.traits.ahead is None or not decisions.is_whole:
        scored = parts.target.forward(packed, taps)
        until = passed = perf_counter()
    else:
        meanwhile = RunAhead(parts.traits.ahead, packed)
        with parts.executor.beside(meanwhile.work):
            scored = parts.target.forward(packed, taps)
            passed = perf_counter()
        until, packed = perf_counter(), meanwhile.continued()
    times = StepTimes(draft=decisions.seconds + drafted - began + until - passed, target=passed - drafted)
    return judge_scored(packed, decisions, scored, parts, times, until)


def taps_for(packed: PackedDrafts, parts: Parts) -> tuple[int, ...]:
    """Whose hidden states the drafter wants of this pass."""
    if not parts.guesses:
        return ()
    needs = parts.drafter.needs
    return needs.taps + needs.prompt_taps * any(packed.num_certain)


def judge_scored(
    packed: PackedDrafts, decisions: Decisions, scored: TargetOutput, parts: Parts, times: StepTimes, until: float
) -> Judged:
    """Ask the rule about a pass. `times`: what it took; `until`: the clock when it was over."""
    p = target_distributions(packed, scored.logits, soft=parts.soft)
    coins = [seq.coins(seq) for seq, one in zip(packed.seqs, packed.drafts, strict=True) if one is not None]
    verdicts = rule_for(packed.seqs, parts)(packed, p, coins)
    if len(verdicts) != len(coins):
        raise ValueError(f"the acceptance rule gave {len(verdicts)} verdicts for {len(coins)} guesses")
    return Judged(
        packed=packed,
        decisions=decisions,
        scored=scored,
        p=p,
        verdicts=verdicts,
        times=times,
        until=until,
        prompt_logprobs=score_prompts(packed, scored) if any(packed.prompt_rows) else (),
    )


def keep(judged: Judged, parts: Parts, fail: Fail | None = None) -> list[StepEvent]:
    """Make the verdicts true, and let drafter and policy learn from them. `fail`: see `commit`."""
    events, seen = commit(judged, parts.target, fail)
    if parts.guesses:
        parts.drafter.observe([as_read(one) if isinstance(one.draft, Undrafted) else one for one in seen])
    rest, whole, count = perf_counter() - judged.until, judged.times, len(events)
    times = StepTimes(draft=whole.draft / count, target=whole.target / count, rest=rest / count, num_texts=count)
    for event in events:  # which no caller has read yet
        object.__setattr__(event, "times", times)
    if parts.guesses and (planned := as_planned(events, judged.decisions)) is not None:
        parts.policy.update(planned)
    return events


def rule_for(seqs: Seq[Sequence], parts: Parts) -> Verifier:
    """The rule that judges a pass over these sequences: the engine's own, unless one of them names another."""
    for seq in seqs:
        if seq.settled.rule is not None:
            return parts.named_rules or parts.verifier
    return parts.verifier
