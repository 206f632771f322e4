"""Rollback: keep guesses until the target finds one very improbable, and take that one back. Lossy.

Paper: Speculative Decoding with Big Little Decoder, 2023, https://arxiv.org/abs/2302.07863
In: any tree, p [N, V]. A guess x is kept while -log p(x) <= threshold; the longest kept path, then one token of the
target in place of the first guess that failed. Greedy requests are judged by their distribution at temperature 1. Near
threshold 0 only a guess of probability 1 is kept, and greedy text is plain decoding's. Out: a path and one more token.
"""

import math
from dataclasses import dataclass

from outdraft.core.method import RuleMethod, arxiv
from outdraft.options.ranges import check_range
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.relaxed import keep_longest


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackOptions:
    """When to take a guess back. Raises `ConfigError` naming what is out of range."""

    # a guess to which the target gives a probability below exp(-threshold) is taken back; in nats
    threshold: float = 5.0

    def __post_init__(self) -> None:
        check_range(self, "threshold", least=0, note="nats")


def build(options: RollbackOptions) -> PerDraft:
    """The rule with its threshold."""
    least = math.exp(-options.threshold)
    return PerDraft(lambda case: keep_longest(case, lambda guesses: guesses.masses >= least), lossless=False)


METHOD = RuleMethod(
    name="rollback",
    summary="BiLD's rule: keeps guesses until the target finds one very improbable",
    build=build,
    options=RollbackOptions,
    paper=arxiv("2302.07863", "Speculative Decoding with Big Little Decoder"),
    judges=("chain", "tree"),
    soft=lambda options: True,
)
