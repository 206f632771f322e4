"""One step of speculative decoding: guess, score all guesses in one target pass, keep the accepted tokens.

    draft   a guess for each text (`guesses.py`); the pending token alone where nothing is guessed
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

from outdraft.core.draft import Draft, chain
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.packing import PackedDrafts, pack
from outdraft.core.sequence import Sequence
from outdraft.core.target import TargetOutput
from outdraft.core.verifier import Verifier
from outdraft.decode.commit import Fail, Judged, commit
from outdraft.decode.distributions import target_distributions
from outdraft.decode.executor import RunAhead
from outdraft.decode.fit import what_fits
from outdraft.decode.forced import as_planned, as_read, drafted_by
from outdraft.decode.guesses import guess, overrule
from outdraft.decode.parts import Parts
from outdraft.decode.prompt_logprobs import score_prompts
from outdraft.options.errors import CacheFullError
from outdraft.options.foreign import anything_but_an_interrupt


class Apart(Protocol):
    """What a step does where something raises, in place of raising it too (`decode/apart.py`)."""

    def fail(self, seq: Sequence, error: BaseException) -> StepEvent:
        """End this request with the error."""
        ...

    def again(self, seqs: Seq[Sequence], guesses: Seq[Draft], parts: Parts, error: BaseException) -> list[StepEvent]:
        """The round once more, each sequence by itself."""
        ...


@torch.inference_mode()
def step(seqs: Seq[Sequence], parts: Parts, apart: Apart | None = None) -> list[StepEvent]:
    """Advance every sequence by one target pass: a prompt chunk, or at least one token. One event each.

    `apart`: an error ends only the sequence that caused it. Drafter and policy are shielded then.
    """
    began = perf_counter()
    guesses = draft(seqs, parts)
    try:
        judged = judge_what_fits(seqs, guesses, parts, began)
    except anything_but_an_interrupt() as error:
        if apart is None:
            raise
        return apart.again(seqs, guesses, parts, error)
    return keep(judged, parts, apart.fail if apart is not None else None)


def draft(seqs: Seq[Sequence], parts: Parts) -> list[Draft]:
    """A guess for each sequence; while a prompt is being read there is nothing to guess from."""
    for seq in seqs:
        seq.turn.drafted_by, seq.turn.is_overruled = "", False
    found = guess(seqs, parts) if parts.guesses else {}
    return [found[seq.id] if seq.id in found else chain([seq.pending]) for seq in seqs]


def judge_what_fits(seqs: Seq[Sequence], guesses: Seq[Draft], parts: Parts, began: float) -> Judged:
    """`judge`, of the guesses what memory has room for (`decode/fit.py`).

    Once more with the pending tokens alone, should memory be full all the same.
    """
    if not parts.guesses:
        return judge(seqs, guesses, parts, began)
    fitting = what_fits(seqs, guesses, parts.room)
    overrule(seqs, guesses, fitting)
    is_whole = all(fits is one for fits, one in zip(fitting, guesses, strict=True))
    try:
        return judge(seqs, fitting, parts, began, ahead=is_whole)  # no drafter goes on behind a guess that was cut
    except CacheFullError:
        if all(one.num_nodes == 1 for one in fitting):
            raise
        plain = [chain([seq.pending]) for seq in seqs]
        overrule(seqs, fitting, plain)
        return judge(seqs, plain, parts, began, ahead=False)


def judge(seqs: Seq[Sequence], guesses: Seq[Draft], parts: Parts, began: float, *, ahead: bool = True) -> Judged:
    """Score all guesses in one pass and ask the rule. No sequence has changed when this returns or raises.

    `began`: the clock when drafting began. `ahead`: whether the drafter may work beside the pass, once for a guess.
    """
    packed = pack(seqs, guesses)
    taps, drafted = taps_for(packed, parts), perf_counter()
    if parts.traits.ahead is None or not ahead:
        scored = parts.target.forward(packed, taps)
        until = passed = perf_counter()
    else:
        meanwhile = RunAhead(parts.traits.ahead, packed)
        with parts.executor.beside(meanwhile.work):
            scored = parts.target.forward(packed, taps)
            passed = perf_counter()
        until, packed = perf_counter(), meanwhile.continued()
    return judge_scored(
        packed,
        scored,
        parts,
        draft_seconds=drafted - began + until - passed,
        target_seconds=passed - drafted,
        until=until,
    )


def taps_for(packed: PackedDrafts, parts: Parts) -> tuple[int, ...]:
    """Whose hidden states the drafter wants of this pass."""
    if not parts.guesses:
        return ()
    needs = parts.drafter.needs
    return needs.taps + needs.prompt_taps * any(packed.num_certain)


def judge_scored(
    packed: PackedDrafts,
    scored: TargetOutput,
    parts: Parts,
    *,
    draft_seconds: float,
    target_seconds: float,
    until: float,
) -> Judged:
    """Ask the rule about a pass. The seconds are what it took; `until`: the clock when it was over."""
    p = target_distributions(packed, scored.logits, soft=parts.soft)
    coins = [seq.coins(seq) for seq, one in zip(packed.seqs, packed.drafts, strict=True) if one is not None]
    verdicts = rule_for(packed.seqs, parts)(packed, p, coins)
    if len(verdicts) != len(coins):
        raise ValueError(f"the acceptance rule gave {len(verdicts)} verdicts for {len(coins)} guesses")
    return Judged(
        packed=packed,
        scored=scored,
        p=p,
        verdicts=verdicts,
        draft_seconds=draft_seconds,
        target_seconds=target_seconds,
        until=until,
        prompt_logprobs=score_prompts(packed, scored) if any(packed.prompt_rows) else (),
    )


def keep(judged: Judged, parts: Parts, fail: Fail | None = None) -> list[StepEvent]:
    """Make the verdicts true, and let drafter and policy learn from them. `fail`: see `commit`."""
    packed = judged.packed
    events, seen = commit(judged, parts.target, fail)
    if parts.guesses:
        parts.drafter.observe(as_read(seen))
    share = 1 / len(packed.seqs)
    rest = perf_counter() - judged.until
    times = StepTimes(draft=judged.draft_seconds * share, target=judged.target_seconds * share, rest=rest * share)
    events = [
        replace(
            event,
            times=times,
            num_replayed=judged.scored.replayed.get(i),
            drafted_by=drafted_by(packed, i) if event.num_draft_tokens else "",
        )
        for i, event in enumerate(events)
    ]
    if parts.guesses and (planned := as_planned(events, packed)) is not None:
        parts.policy.update(planned)
    return events


def rule_for(seqs: Seq[Sequence], parts: Parts) -> Verifier:
    """The rule that judges a pass over these sequences: the engine's own, unless one of them names another."""
    for seq in seqs:
        if seq.settled.rule is not None:
            return parts.named_rules or parts.verifier
    return parts.verifier
