"""Counters of one request: tokens, passes, acceptance and times, by the same rule for every method and plain
decoding.

tau counts the extra token. `accepted / drafted` depends on the draft length and is no rate of the pair, so it is given
only under the name that peers give it (`draft_acceptance_rate`); the acceptance rate proper is
accepted / (accepted + rejections), the maximum-likelihood estimate of a truncated geometric distribution.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

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
class RequestStats:
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
        costs.num_tokens += len(event.tokens)
        costs.draft_seconds += event.times.draft
        costs.target_seconds += event.times.target
        costs.rest_seconds += event.times.rest

    @property
    def tau(self) -> float:
        """Mean tokens per target pass, the extra token included."""
        return self.num_tokens / self.num_steps if self.num_steps else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / (accepted + rejections), of guesses; tokens that a mask forced are none."""
        accepted = self.num_accepted_tokens - self.num_forced_tokens
        examined = accepted + self.num_rejections
        return accepted / examined if examined else 0.0

    @property
    def acceptance_by_position(self) -> list[float]:
        """P(accepted at i | examined at i), i = 1, 2, ..."""
        return [1 - self.first_rejection[i] / self.reached[i] for i in range(1, max(self.reached, default=0) + 1)]

    @property
    def first_rejection_histogram(self) -> list[int]:
        """Times that the first rejection fell on draft position 1, 2, ..."""
        return [self.first_rejection[i] for i in range(1, max(self.first_rejection, default=0) + 1)]

    @property
    def times(self) -> dict[str, float]:
        """Seconds spent drafting, in the target, and elsewhere."""
        return {"draft": self.draft_seconds, "target": self.target_seconds, "rest": self.rest_seconds}

    def as_metrics(self) -> dict[str, Any]:
        """The shape that vLLM's API gives and that benchmarking tools read, with ours beside it."""
        steps = self.num_drafted_steps
        longest = max(self.accepted_lengths, default=-1)
        return {
            "speculative_decoding": {
                "mean_acceptance_length": 1 + self.num_accepted_tokens / steps if steps else 1.0,
                "draft_acceptance_rate": self.num_accepted_tokens / self.num_draft_tokens if steps else 0.0,
                "acceptance_histogram": [self.accepted_lengths[i] for i in range(longest + 1)],
                "num_spec_steps": steps,
                "num_spec_steps_by_method": dict(self.rounds_by_method),
                "num_accepted_draft_tokens": self.num_accepted_tokens,
                "num_draft_tokens": self.num_draft_tokens,
                "per_step_drafted": [drafted for drafted, _ in self.per_step],
                "per_step_accepted": [accepted for _, accepted in self.per_step],
                "tokens_per_target_pass": self.tau,
                "acceptance_rate": self.acceptance_rate,
                "acceptance_by_position": self.acceptance_by_position,
                "first_rejection_histogram": self.first_rejection_histogram,
                "num_guarded": self.num_guarded,
                "num_replayed_rows": self.num_replayed_rows,
                "seconds": self.times,
                "passes_by_rows": [{"rows": rows, **asdict(costs)} for rows, costs in sorted(self.by_rows.items())],
            }
        }
