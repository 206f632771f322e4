"""One step of speculative decoding: guess, score all guesses in one target pass, keep the accepted tokens.

Every method and the plain baseline run through this one function (Leviathan, Kalman and Matias, "Fast inference from
transformers via speculative decoding", 2022, https://arxiv.org/abs/2211.17192; Chen et al., "Accelerating large
language model decoding with speculative sampling", 2023, https://arxiv.org/abs/2302.01318).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from time import perf_counter

import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Drafter, Traits, inner
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.packing import PackedDrafts, pack
from outdraft.core.policy import Budget, Policy, spared_by
from outdraft.core.room import Room, Unbounded
from outdraft.core.sequence import Sequence
from outdraft.core.target import Target, TargetOutput
from outdraft.core.verifier import Verifier
from outdraft.decode.asked import as_asked
from outdraft.decode.commit import Fail, Judged, commit
from outdraft.decode.distributions import target_distributions
from outdraft.decode.executor import Executor, RunAhead, Serial
from outdraft.decode.fit import what_fits
from outdraft.decode.forced import (
    LEAST_BESIDE_LOOK_UPS,
    LEAST_FORCED,
    as_planned,
    as_read,
    drafted_by,
    fitted,
    forced_draft,
    is_dear,
)
from outdraft.decode.prompt_logprobs import score_prompts
from outdraft.options.errors import CacheFullError
from outdraft.options.speculative import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The four things that a step is made of, and who works beside the target."""

    target: Target
    drafter: Drafter
    verifier: Verifier
    policy: Policy
    soft: bool = False  # the rule judges greedy requests by their distribution at temperature 1 (`RuleMethod.soft`)
    reads_confidence: bool = False  # the rule reads how sure the drafter is of its guesses
    executor: Executor = field(default_factory=Serial)
    room: Room = field(default_factory=Unbounded)  # the target's memory, for the planning of passes
    held: Held = field(default_factory=Held)  # what requests may ask for by name
    traits: Traits = field(init=False)  # the drafter's, asked once
    has_peeking: bool = field(init=False)  # it, or a drafter that it asks, may guess what a constraint forbids

    def __post_init__(self) -> None:
        object.__setattr__(self, "traits", self.drafter.traits)
        object.__setattr__(self, "has_peeking", any(one.traits.peeks for one in inner(self.drafter)))

    def spared(self, seq: Sequence, crowd: int) -> frozenset[int]:
        """The drafter's arms that need not hear of a text that joins `crowd` of them, itself one."""
        return spared_by(self.policy, seq, crowd)


@torch.inference_mode()
def step(seqs: Seq[Sequence], parts: Parts) -> list[StepEvent]:
    """Advance every sequence by one target pass: a prompt chunk, or at least one token. One event each."""
    began = perf_counter()
    return keep(judge_what_fits(seqs, draft(seqs, parts), parts, began), parts)


def draft(seqs: Seq[Sequence], parts: Parts) -> list[Draft]:
    """A guess for each sequence; while a prompt is being read there is nothing to guess from.

    Where a constraint leaves one continuation only, that is the guess, and no drafter is asked.
    """
    ready = [seq for seq in seqs if guesses_for(seq)]
    least = LEAST_BESIDE_LOOK_UPS if parts.has_peeking else LEAST_FORCED
    for seq in seqs:
        seq.drafted_by, seq.is_overruled = "", False
    forced = {seq.id: forced_draft(seq, least=least) for seq in ready if parts.traits.guesses}
    guesses = {i: guess for i, guess in forced.items() if guess is not None}
    asked = [seq for seq in ready if seq.id not in guesses]
    proposed = _propose(asked, parts) if asked else []
    fills = parts.traits.guesses and parts.traits.ahead is None
    for seq, guess in zip(asked, proposed, strict=True):
        guesses[seq.id] = fitted(seq, guess, cuts=parts.has_peeking, fills=fills)
    return [guesses[seq.id] if seq.id in guesses else chain([seq.pending]) for seq in seqs]


def _propose(seqs: Seq[Sequence], parts: Parts) -> list[Draft]:
    """The drafter's guesses; none this time where its own rows find no room."""
    planned = parts.policy.plan(seqs)
    budgets = [
        as_asked(seq, budget) if seq.drafts and not is_dear(seq) else _none_for(seq, budget)
        for seq, budget in zip(seqs, planned, strict=True)
    ]  # fmt: skip
    if parts.reads_confidence:  # whatever the policy asks: it must not change what the rule reads
        budgets = [replace(budget, confident=True) for budget in budgets]
    for seq, budget in zip(seqs, budgets, strict=True):
        seq.drafted_by = parts.held.name_of(budget.arm)
    try:
        return parts.drafter.propose(seqs, budgets)
    except CacheFullError:
        for seq, budget in zip(seqs, budgets, strict=True):
            seq.is_overruled = seq.is_overruled or budget.depth > 0
        return [chain([seq.pending]) for seq in seqs]


def _none_for(seq: Sequence, planned: Budget) -> Budget:
    """No guess for want of memory, or because masks are dear. The policy learns nothing if it had planned one."""
    seq.is_overruled = planned.depth > 0
    return Budget(depth=0)


def guesses_for(seq: Sequence) -> bool:
    """Whether the drafter is asked about it."""
    return seq.prefilled and seq.speculates


def judge_what_fits(seqs: Seq[Sequence], guesses: Seq[Draft], parts: Parts, began: float) -> Judged:
    """`judge`, of the guesses what memory has room for (`decode/fit.py`).

    Once more with the pending tokens alone, should memory be full all the same.
    """
    fitting = what_fits(seqs, guesses, parts.room)
    is_whole = all(fits is guess for fits, guess in zip(fitting, guesses, strict=True))
    _overrule(seqs, guesses, fitting)
    try:
        return judge(seqs, fitting, parts, began, ahead=is_whole)  # no drafter goes on behind a guess that was cut
    except CacheFullError:
        if all(guess.num_nodes == 1 for guess in fitting):
            raise
        plain = [chain([seq.pending]) for seq in seqs]
        _overrule(seqs, fitting, plain)
        return judge(seqs, plain, parts, began, ahead=False)


def _overrule(seqs: Seq[Sequence], guesses: Seq[Draft], fitting: Seq[Draft]) -> None:
    """The policy learns nothing from a guess that memory has cut."""
    for seq, guess, fits in zip(seqs, guesses, fitting, strict=True):
        seq.is_overruled = seq.is_overruled or fits.num_nodes < guess.num_nodes


def judge(seqs: Seq[Sequence], guesses: Seq[Draft], parts: Parts, began: float, *, ahead: bool = True) -> Judged:
    """Score all guesses in one pass and ask the rule. No sequence has changed when this returns or raises.

    `began`: the clock when drafting began. `ahead`: whether the drafter may work beside the pass, once for a guess.
    """
    packed = pack(seqs, guesses)
    drafted = perf_counter()
    meanwhile = RunAhead(parts.traits.ahead if ahead else None, packed)
    with parts.executor.beside(meanwhile.work):
        scored = parts.target.forward(packed, taps_for(packed, parts))
        passed = perf_counter()
    joined = perf_counter()
    return judge_scored(
        meanwhile.continued(), scored, parts, draft_seconds=drafted - began + joined - passed,
        target_seconds=passed - drafted, until=joined,
    )  # fmt: skip


def taps_for(packed: PackedDrafts, parts: Parts) -> tuple[int, ...]:
    """Whose hidden states the drafter wants of this pass."""
    needs = parts.drafter.needs
    return needs.taps + needs.prompt_taps * any(packed.num_certain)


def judge_scored(
    packed: PackedDrafts, scored: TargetOutput, parts: Parts, *, draft_seconds: float, target_seconds: float,
    until: float,
) -> Judged:  # fmt: skip
    """Ask the rule about a pass. The seconds are what it took; `until`: the clock when it was over."""
    p = target_distributions(packed, scored.logits, soft=parts.soft)
    coins = [seq.coins(seq) for seq, guess in zip(packed.seqs, packed.drafts, strict=True) if guess is not None]
    verdicts = parts.verifier(packed, p, coins)
    if len(verdicts) != len(coins):
        raise ValueError(f"the acceptance rule gave {len(verdicts)} verdicts for {len(coins)} guesses")
    prompt_logprobs = score_prompts(packed, scored)
    return Judged(
        packed=packed, scored=scored, p=p, verdicts=verdicts, prompt_logprobs=prompt_logprobs,
        draft_seconds=draft_seconds, target_seconds=target_seconds, until=until,
    )  # fmt: skip


def keep(judged: Judged, parts: Parts, fail: Fail | None = None) -> list[StepEvent]:
    """Make the verdicts true, and let drafter and policy learn from them. `fail`: see `commit`."""
    events, seen = commit(judged, parts.target, fail)
    parts.drafter.observe(as_read(seen))
    share = 1 / len(judged.packed.seqs)
    rest = perf_counter() - judged.until
    times = StepTimes(draft=judged.draft_seconds * share, target=judged.target_seconds * share, rest=rest * share)
    events = [
        replace(
            event, times=times, num_replayed=judged.scored.replayed.get(i),
            drafted_by=drafted_by(judged.packed, i) if event.num_draft_tokens else "",
        )
        for i, event in enumerate(events)
    ]  # fmt: skip
    if (planned := as_planned(events, judged.packed)) is not None:
        parts.policy.update(planned)
    return events
