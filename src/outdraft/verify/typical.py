"""Typical acceptance: keep a guess that the target finds probable enough for how sure it is. Lossy.

Paper: Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads, 2024,
https://arxiv.org/abs/2401.10774
In: any tree, p [N, V]. A guess x at a node of distribution p is kept if

    p(x) > min(epsilon, delta exp(-H(p)))        H: entropy in nats

and of all kept paths the longest is accepted; ties: the likelier. Then one token of the target. At temperature 0 the
distribution is one-hot, so the rule is greedy matching, as published. With epsilon >= 1 and delta >= V nothing is kept,
and the distribution is the target's. Out: a path and one more token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.method import RuleMethod, arxiv
from outdraft.options.ranges import check_range
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.relaxed import Guesses, keep_longest


@dataclass(frozen=True, slots=True, kw_only=True)
class TypicalOptions:
    """The two thresholds. Raises `ConfigError` naming what is out of range."""

    epsilon: float = 0.09  # a guess to which the target gives more than this probability is always kept
    delta: float = 0.3  # lowers that bar to delta * exp(-entropy) where the target is unsure; larger is stricter

    def __post_init__(self) -> None:
        check_range(self, "epsilon", "delta", least=0)


def build(options: TypicalOptions) -> PerDraft:
    """The rule with its thresholds."""

    def keep(guesses: Guesses) -> Tensor:
        entropy = torch.special.entr(guesses.rows).sum(-1)  # [n]
        return guesses.masses > (options.delta * torch.exp(-entropy)).clamp(max=options.epsilon)

    return PerDraft(lambda case: keep_longest(case, keep), lossless=False)


METHOD = RuleMethod(
    name="typical",
    summary="Medusa's rule: keeps what is probable enough for how unsure the target is",
    build=build,
    options=TypicalOptions,
    paper=arxiv("2401.10774", "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"),
    judges=("chain", "tree"),
)
