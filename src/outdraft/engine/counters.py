"""What is counted of one request, by the same rule for every method and plain decoding: tokens, passes, times.

Rates and the words for them are in `stats.py`.
"""

from collections import Counter
from dataclasses import dataclass, field

from outdraft.core.events import StepEvent
from outdraft.decode.forced import FORCED


@dataclass(slots=True, kw_only=True)
class PassCosts:
    """What the passes with one number of rows took: seconds of all of them together."""

    num_passes: int = 0
    num_tokens: int = 0  # written by them
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    rest_seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counters of one request; fed one event a step."""

    num_steps: int = 0  # target passes that emitted tokens
    num_prompt_steps: int = 0  # target passes that read the prompt (the one that ends it emits too)
    num_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_forced_tokens: int = 0  # of these, what a mask left no choice about
    num_rejections: int = 0
    num_drafted_steps: int = 0  # steps with a non-empty draft
    rounds_by_method: Counter[str] = field(default_factory=Counter)  # who drafted -> steps with its draft
    rounds_by_version: Counter[int] = field(default_factory=Counter)  # of its weights -> the same (`drafter.Adoption`)
    num_guarded: int = 0  # rounds with a decision in doubt, from which on the guard computed all rows again
    num_replayed_rows: int = 0  # target passes of one row that it took
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    rest_seconds: float = 0.0
    first_rejection: Counter[int] = field(default_factory=Counter)  # position in the draft, from 1 -> times
    accepted_lengths: Counter[int] = field(default_factory=Counter)
    reached: Counter[int] = field(default_factory=Counter)  # position -> times a draft was examined there
    by_rows: dict[int, PassCosts] = field(default_factory=dict)  # rows of a pass without prompt; 1: nothing drafted
    num_shared_passes: int = 0  # of those in `by_rows`, passes that read or wrote other texts too
    plain_pass: float | None = None  # seconds that a pass of one row was measured to take, by the engine's policy
    per_step: list[tuple[int, int]] = field(default_factory=list)  # (drafted, accepted)

    def add(self, event: StepEvent) -> None:
        self.draft_seconds += event.times.draft
        self.target_seconds += event.times.target
        self.rest_seconds += event.times.rest
        self.num_prompt_steps += event.num_certain > 0
        if event.num_replayed is not None:
            self.num_guarded += 1
            self.num_replayed_rows += event.num_replayed
        if not event.tokens:
            return
        self.num_steps += 1
        self.num_tokens += len(event.tokens)
        if not event.num_certain:
            self._add_costs(event)
        if not event.num_draft_tokens:
            return
        accepted = event.num_accepted
        self.num_drafted_steps += 1
        self.rounds_by_method[event.drafted_by] += 1
        self.rounds_by_version[event.draft_version] += 1
        self.num_draft_tokens += event.num_draft_tokens
        self.num_accepted_tokens += accepted
        self.accepted_lengths[accepted] += 1
        self.per_step.append((event.num_draft_tokens, accepted))
        if event.drafted_by == FORCED:  # no drafter guessed, and nothing is learned about a drafter
            self.num_forced_tokens += accepted
            return
        for position in range(1, accepted + event.rejected + 1):
            self.reached[position] += 1
        if event.rejected:
            self.num_rejections += 1
            self.first_rejection[accepted + 1] += 1

    def _add_costs(self, event: StepEvent) -> None:
        costs = self.by_rows.setdefault(event.num_nodes, PassCosts())
        costs.num_passes += 1
        self.num_shared_passes += event.times.num_texts > 1
        costs.num_tokens += len(event.tokens)
        costs.draft_seconds += event.times.draft
        costs.target_seconds += event.times.target
        costs.rest_seconds += event.times.rest
