"""n-sample tolerance: accept a guess that is among so many independent draws of the target's distribution. Lossy above
1.

Paper: Fast and High-Quality Auto-Regressive Speech Synthesis via Speculative Decoding, 2024,
https://arxiv.org/abs/2410.21951, whose tolerance for speech codes is rendered here; its own form is not public.
In: any tree, p [N, V]; q is not read. Child x is accepted with 1 - (1 - p(x))^s; given that, its next sibling by what
is left of p; none: a token of what is left. Out: a path and one more token. With s = 1 the rule is `sequential`.
"""

from dataclasses import dataclass

from outdraft.core.method import RuleMethod, arxiv
from outdraft.options.ranges import check_range
from outdraft.verify.shared.in_turn import judge_in_turn
from outdraft.verify.shared.per_draft import PerDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleToleranceOptions:
    """How many draws. Raises `ConfigError` naming what is out of range."""

    num_draws: int = 3  # a guess is accepted if it is among so many independent draws of the target (s); 1 is exact

    def __post_init__(self) -> None:
        check_range(self, "num_draws", least=1, most=1024, note="1 is the exact rule")


def build(options: SampleToleranceOptions) -> PerDraft:
    """The rule with its number of draws."""
    return PerDraft(lambda case: judge_in_turn(case, num_draws=options.num_draws), lossless=options.num_draws == 1)


METHOD = RuleMethod(
    name="sample_tolerance",
    summary="keeps a guess that is among several draws of the target; exact with one draw",
    build=build,
    options=SampleToleranceOptions,
    paper=arxiv("2410.21951", "Fast and High-Quality Auto-Regressive Speech Synthesis via Speculative Decoding"),
    judges=("chain", "tree"),
)
