"""One step of speculative decoding: guess, score all guesses in one target pass, keep what the target agrees to.

Every method and the plain baseline run through this one function (Leviathan, Kalman and Matias, "Fast inference from
transformers via speculative decoding", 2022, https://arxiv.org/abs/2211.17192; Chen et al., "Accelerating large
language model decoding with speculative sampling", 2023, https://arxiv.org/abs/2302.01318).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from time import perf_counter

import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Drafter
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.packing import pack
from outdraft.core.policy import Policy
from outdraft.core.sequence import Sequence
from outdraft.core.target import Target
from outdraft.core.verifier import Verifier
from outdraft.decode.commit import commit
from outdraft.decode.executor import Executor, Serial, ahead_of
from outdraft.decode.guard import settle
from outdraft.decode.laws import target_laws


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The four things that a step is made of, and who works beside the target."""

    target: Target
    drafter: Drafter
    verifier: Verifier
    policy: Policy
    soft: bool = False  # the rule judges greedy requests by their law at temperature 1 (`Method.soft`)
    guard: float = 0.0  # settle decisions that such a change of a logit difference could turn; 0: none
    executor: Executor = field(default_factory=Serial)


@torch.inference_mode()
def step(seqs: Seq[Sequence], parts: Parts) -> list[StepEvent]:
    """Advance every sequence by one target pass: a prompt chunk, or at least one token. One event each."""
    began = perf_counter()
    packed = pack(seqs, draft(seqs, parts))
    drafted = perf_counter()
    needs = parts.drafter.needs
    with parts.executor.beside(ahead_of(parts.drafter, packed)):
        scored = parts.target.forward(packed, needs.taps + needs.prompt_taps * any(packed.num_certain))
        passed = perf_counter()
    joined = perf_counter()

    p = target_laws(packed, scored.logits, soft=parts.soft)
    coins = [seq.coins(seq) for seq, guess in zip(packed.seqs, packed.drafts, strict=True) if guess is not None]
    verdicts = parts.verifier(packed, p, coins)
    replayed: dict[int, int] = {}
    if scored.drifted and parts.guard and parts.verifier.lossless:
        verdicts, replayed = settle(packed, scored, p, verdicts, parts.target, parts.guard)
    events, seen = commit(packed, scored, p, verdicts, parts.target)
    parts.drafter.observe(seen)

    share = 1 / len(seqs)
    rest = perf_counter() - joined
    times = StepTimes(
        draft=(drafted - began + joined - passed) * share, target=(passed - drafted) * share, rest=rest * share
    )
    events = [replace(event, times=times, num_replayed=replayed.get(i)) for i, event in enumerate(events)]
    parts.policy.update(events)
    return events


def draft(seqs: Seq[Sequence], parts: Parts) -> list[Draft]:
    """A guess for each sequence; while a prompt is being read there is nothing to guess from."""
    ready = [seq for seq in seqs if seq.prefilled]
    guesses = iter(parts.drafter.propose(ready, parts.policy.plan(ready)) if ready else [])
    return [next(guesses) if seq.prefilled else chain([seq.pending]) for seq in seqs]
