"""What one step did for one sequence: the record that streams, statistics, policies and benches read."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from enum import StrEnum

from outdraft.core.draft_tree import DraftTree
from outdraft.core.logprobs import TokenLogprobs
from outdraft.options.errors import OutdraftError


class Source(StrEnum):
    """Where an emitted token came from."""

    ACCEPTED = "accepted"  # a draft token that the target kept
    RECOVERED = "recovered"  # the target's own token after a rejection
    BONUS = "bonus"  # the target's own token after the whole draft was kept
    PLAIN = "plain"  # the target's own token with nothing drafted
    RESUMED = "resumed"  # written elsewhere, before the request came here (`Request.resume_token_ids`)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of one step: one sequence's share, the batch's divided by its size. `step_times` is the whole step's."""

    draft: float = 0.0
    target: float = 0.0
    rest: float = 0.0
    num_texts: int = 1  # that share the step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """One sequence's share of one step. A prompt chunk that emits nothing has no tokens."""

    seq_id: int
    tokens: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of the prompt tokens that the rows read here predict
    finish_reason: str | None = None
    error: OutdraftError | None = None  # what ended the request, with the finish reason "error"
    variant: str = ""  # the rounding of the weights that wrote the tokens, by name
    num_certain: int = 0  # prompt rows read, or, in a pass that reads none of its own, those of its negative prompt
    num_draft_tokens: int = 0  # acceptable nodes offered
    drafted_by: str = ""  # who offered them, by name; "forced": a mask left no choice
    draft_version: int = 0  # how often the drafter's weights had been replaced by then (`drafter.Adoption`)
    draft_depth: int = 0  # longest acceptable path offered
    num_nodes: int = 0  # rows of the pass that belong to the draft: pending, acceptable and probes
    confidences: tuple[float, ...] = ()  # of the accepted nodes, then of the rejected eldest child, if the drafter says
    choices: tuple[tuple[int, int], ...] = ()  # (accepted child's rank, siblings) at each node; rank = siblings: none
    num_accepted: int = 0  # length of the path that the rule accepted, before any cut at a stop
    rejected: bool = False  # the path ended at a rejection, not at a leaf
    draft_tree: DraftTree | None = None  # of requests that ask for it (`Request.return_draft_tree`)
    num_replayed: int | None = None  # rows computed again to settle a decision; None: none was in doubt
    times: StepTimes = StepTimes()


def step_times(events: Seq[StepEvent]) -> StepTimes:
    """Seconds of a whole step, from its events, one for each sequence of the batch."""
    draft = target = rest = 0.0
    for event in events:
        times = event.times
        draft += times.draft
        target += times.target
        rest += times.rest
    return StepTimes(draft=draft, target=target, rest=rest)
