"""Top-beta with a gap: keep a guess among the target's best few that is not far behind the very best. Lossy.

Paper: Speculative Decoding: Exploiting Speculative Execution for Accelerating Seq2seq Generation, 2022,
https://arxiv.org/abs/2203.16487
In: any tree, p [N, V]. A guess x is kept if x is among the beta most probable tokens and log p_max - log p(x) <= gap;
the longest kept path, then one token of the target. Greedy requests are judged by their distribution at temperature 1;
with beta = 1 only the best token is kept (of equal ones that of the smallest id, which plain decoding takes), and
greedy text is plain decoding's. Out: a path and one more token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.method import RuleMethod, arxiv
from outdraft.options.ranges import check_range
from outdraft.verify.shared.per_draft import PerDraft
from outdraft.verify.shared.relaxed import Guesses, keep_longest


@dataclass(frozen=True, slots=True, kw_only=True)
class TopBetaOptions:
    """How far down the target's ranking a guess may stand. Raises `ConfigError` naming what is out of range."""

    beta: int = 5  # a guess must be among this many most probable tokens of the target; 1 allows the best one alone
    gap: float = 3.0  # how far a guess's log probability may lie below that of the best token, in nats

    def __post_init__(self) -> None:
        check_range(self, "beta", least=1, note="1 is the best token alone")
        check_range(self, "gap", least=0, note="nats")


def build(options: TopBetaOptions) -> PerDraft:
    """The rule with its limits."""

    def keep(guesses: Guesses) -> Tensor:
        rows, masses, tokens = guesses.rows, guesses.masses[:, None], guesses.tokens[:, None]
        is_elder = torch.arange(rows.shape[-1], device=rows.device) < tokens  # of equal tokens that of the smaller id
        rank = ((rows > masses) | ((rows == masses) & is_elder)).sum(-1)  # [n] tokens before it
        behind = guesses.rows.amax(-1).log() - guesses.masses.log()
        return (rank < options.beta) & (behind <= options.gap)

    return PerDraft(lambda case: keep_longest(case, keep), lossless=False)


METHOD = RuleMethod(
    name="top_beta",
    summary="keeps guesses among the target's best few, close behind the best",
    build=build,
    options=TopBetaOptions,
    paper=arxiv(
        "2203.16487", "Speculative Decoding: Exploiting Speculative Execution for Accelerating Seq2seq Generation"
    ),
    judges=("chain", "tree"),
    soft=lambda options: True,
)
