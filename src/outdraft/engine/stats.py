"""Statistics of one request: rates of what was counted (`counters.py`), and one line of text.

tau counts the extra token. `accepted / drafted` depends on the draft length and is no rate of the pair, so it is given
only under the name that peers give it (`draft_acceptance_rate`); the acceptance rate proper is
accepted / (accepted + rejections), the maximum-likelihood estimate of a truncated geometric distribution.

The gain is an estimate: plain decoding would have taken a pass of one row for each token. Such passes were measured in
the request itself (rounds without a draft), or by the policy of the engine.
"""

from dataclasses import asdict
from typing import Any

from outdraft.engine.counters import Counters

_FEW = 8  # passes, of which a hiccup of the machine is too large a part


class RequestStats(Counters):
    """Counters of one request, and what follows from them."""

    __slots__ = ()

    def __str__(self) -> str:
        """One line: size, speed, who drafted, and the estimated gain."""
        passes = f"{self.num_tokens} tokens in {self.num_steps} passes ({self.tau:.2f} a pass)"
        speed = f", {self.seconds:.2f} s, {self.num_tokens / self.seconds:.0f} tokens/s" if self.seconds > 0 else ""
        parts = [passes + speed]
        if self.num_accepted_tokens - self.num_forced_tokens + self.num_rejections:
            parts.append(f"{self.acceptance_rate:.0%} of examined guesses accepted")
        if self.rounds_by_method:
            rounds = [f"{name or 'a drafter'} in {count}" for name, count in self.rounds_by_method.most_common()]
            parts.append(f"drafted by {', '.join(rounds)}")
        if (gain := self.estimated_speedup) is not None:
            parts.append(f"about {gain:.1f}x plain (estimated from measured pass costs)")
        return "; ".join(parts)

    @property
    def brief(self) -> str:
        """The same in a few words."""
        speed = f", {self.num_tokens / self.seconds:.0f} tokens/s" if self.seconds > 0 else ""
        gain = self.estimated_speedup
        more = "" if gain is None else f", about {gain:.1f}x plain (estimated)"
        return f"{self.num_tokens} tokens, {self.tau:.2f} a pass{speed}{more}"

    @property
    def seconds(self) -> float:
        """This text's share of all passes, those that read its prompt included."""
        return self.draft_seconds + self.target_seconds + self.rest_seconds

    @property
    def estimated_speedup(self) -> float | None:
        """How many times as long plain decoding would have taken behind the prompt; an estimate.

        Never more than the tokens of a pass, for a pass with a draft does all the work of one without. None where
        nothing was drafted, where no pass of one row was measured, and for a text that shared its passes with others:
        what a batch costs without drafts is not known of one text.
        """
        costs, plain = self.by_rows.values(), self.measured_plain_pass
        seconds = sum(one.draft_seconds + one.target_seconds + one.rest_seconds for one in costs)
        if not self.num_drafted_steps or self.num_shared_passes or plain is None or seconds <= 0:
            return None
        tokens = sum(one.num_tokens for one in costs)
        return min(plain * tokens / seconds, tokens / sum(one.num_passes for one in costs))

    @property
    def measured_plain_pass(self) -> float | None:
        """Seconds of a pass of one row: the text's own, on the machine as it was then; of few, the policy's."""
        own = self.by_rows.get(1)
        if own is None or (own.num_passes < _FEW and self.plain_pass is not None):
            return self.plain_pass
        return (own.target_seconds + own.rest_seconds) / own.num_passes

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
    def hazards(self) -> list[float]:
        """P(first rejected at i | examined at i), i = 1, 2, ..."""
        return [1 - one for one in self.acceptance_by_position]

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
                "estimated_speedup": self.estimated_speedup,
                "plain_pass_seconds": self.measured_plain_pass,
                "num_shared_passes": self.num_shared_passes,
                "num_forced_tokens": self.num_forced_tokens,
                "acceptance_by_position": self.acceptance_by_position,
                "first_rejection_histogram": self.first_rejection_histogram,
                "num_guarded": self.num_guarded,
                "num_replayed_rows": self.num_replayed_rows,
                "seconds": self.times,
                "passes_by_rows": [{"rows": rows, **asdict(costs)} for rows, costs in sorted(self.by_rows.items())],
            }
        }
