"""Leniency: rejection sampling whose chance of acceptance is raised by a factor. Lossy above 1.

Paper: Fast Inference from Transformers via Speculative Decoding, 2022, https://arxiv.org/abs/2211.17192 (appendix;
its l is 1 / leniency); Cascade Speculative Drafting, 2023, https://arxiv.org/abs/2312.11462 (the greedy form)
In: chains and trees, p and q [N, V]. With l >= 1:

    sampled    accept x with min(1, l p(x) / q(x)), else draw from (l p - q)_+: no token comes out with more than l p(x)
    greedy     keep x if it is the best token, or p(x) > q(x) / l, by the distribution at temperature 1

where q(x) of a deterministic guess is the drafter's own probability if it says one, in the greedy form, else 1.
Out: a path and one more token. With l = 1 the rule is `multi_draft` (on chains `rejection`), and exact.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.verdict import Verdict
from outdraft.options.ranges import check_range
from outdraft.verify.shared.case import Case
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.relaxed import Guesses, keep_longest
from outdraft.verify.shared.siblings import judge_siblings


@dataclass(frozen=True, slots=True, kw_only=True)
class LeniencyOptions:
    """How much is forgiven. Raises `ConfigError` naming what is out of range."""

    leniency: float = 2.0  # the factor by which the chance of acceptance is raised (l); 1 is exact

    def __post_init__(self) -> None:
        check_range(self, "leniency", least=1, note="1 is the exact rule")


def build(options: LeniencyOptions) -> PerDraft:
    """The rule with its factor."""

    def judge(case: Case) -> Verdict:
        if options.leniency > 1 and case.seq.request.params.greedy:
            return keep_longest(case, lambda guesses: _good_enough(case, guesses, options.leniency))
        return judge_siblings(case, leniency=options.leniency)

    return PerDraft(judge, lossless=options.leniency == 1)


def _good_enough(case: Case, guesses: Guesses, leniency: float) -> Tensor:
    """Which guesses pass the loaded coin: [n] bool."""
    best = guesses.rows.argmax(-1) == guesses.tokens
    if case.q is not None:
        drafted = case.q[[case.row(node) for node in guesses.nodes], guesses.tokens]
    elif case.confidence is not None:
        drafted = case.confidence[guesses.nodes].to(guesses.masses)
    else:
        drafted = torch.ones_like(guesses.masses)
    return best | (leniency * guesses.masses > drafted)


METHOD = RuleMethod(
    name="leniency",
    summary="rejection sampling with the chance of acceptance raised by a factor; exact at 1",
    build=build,
    options=LeniencyOptions,
    paper=arxiv("2211.17192", "Fast Inference from Transformers via Speculative Decoding"),
    judges=("chain", "tree"),
    prefers_drawn=True,
    soft=lambda options: options.leniency > 1,
    reads_confidence=lambda options: options.leniency > 1,
)
