"""One line of a record: one method on one prompt, with all that is needed to read it alone years later.

Every round stands there with plain decoding's figures of the same round, so a speed-up needs no other line. Positions
of a draft count from 1; lists by position begin with position 1.
"""

from dataclasses import dataclass
from statistics import fmean

from outdraft.bench.trial import PromptTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """What was measured of one method on one workload."""

    suite: str
    category: str
    prompt: str
    method: str
    identical: bool | None  # None: plain decoding's own text is not promised here
    difference: str | None
    agreement: int | None  # of another program: tokens before its first difference
    num_prompt_tokens: int
    num_tokens: int  # of the first text, as are the counters below
    num_steps: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_rejections: int
    num_guarded: int
    num_replayed_rows: int
    tau: float
    reached: list[int]
    rejected: list[int]
    tokens: list[int]  # by round, as are the next ones
    seconds: list[float]
    first_token_seconds: list[float]
    num_first_tokens: list[int]  # how many came with the first piece
    plain_tokens: list[int]
    plain_seconds: list[float]
    plain_first_token_seconds: list[float]
    split: dict[str, float]  # mean seconds of a round: draft, target, rest (all else inside and around the loop)
    peak_bytes: dict[str, int]


def make_row(
    mine: PromptTrial,
    plain: PromptTrial,
    *,
    suite: str,
    category: str,
    prompt: str,
    method: str,
    num_prompt_tokens: int,
) -> MeasuredRow:
    """From the trials of one prompt."""
    stats = mine.first.stats
    longest = max(stats.reached, default=0)
    return MeasuredRow(
        suite=suite,
        category=category,
        prompt=prompt,
        method=method,
        identical=mine.identical,
        difference=mine.difference,
        agreement=mine.agreement,
        num_prompt_tokens=num_prompt_tokens,
        num_tokens=stats.num_tokens,
        num_steps=stats.num_steps,
        num_draft_tokens=stats.num_draft_tokens,
        num_accepted_tokens=stats.num_accepted_tokens,
        num_rejections=stats.num_rejections,
        num_guarded=stats.num_guarded,
        num_replayed_rows=stats.num_replayed_rows,
        tau=stats.tau,
        reached=[stats.reached[i] for i in range(1, longest + 1)],
        rejected=[stats.first_rejection[i] for i in range(1, longest + 1)],
        tokens=[len(one.token_ids) for one in mine.rounds],
        seconds=[one.seconds for one in mine.rounds],
        first_token_seconds=[one.first_token_seconds for one in mine.rounds],
        num_first_tokens=[one.num_first_tokens for one in mine.rounds],
        plain_tokens=[len(one.token_ids) for one in plain.rounds],
        plain_seconds=[one.seconds for one in plain.rounds],
        plain_first_token_seconds=[one.first_token_seconds for one in plain.rounds],
        split=_split(mine),
        peak_bytes=mine.peak_bytes,
    )


def _split(trial: PromptTrial) -> dict[str, float]:
    draft = fmean(one.stats.draft_seconds for one in trial.rounds)
    target = fmean(one.stats.target_seconds for one in trial.rounds)
    return {"draft": draft, "target": target, "rest": fmean(one.seconds for one in trial.rounds) - draft - target}
