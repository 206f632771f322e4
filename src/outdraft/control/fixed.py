"""The same depth in every round, as in the original papers; other policies are compared with it.

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192, where k is called gamma. Data in: sequences; data out: one budget each.
A round emits at most depth + 1 tokens, so near the end of a text the depth shrinks to what can still be used.
"""

from dataclasses import dataclass

from outdraft.control.shared.budgets import SameBudget
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedOptions(PolicyOptions):
    """How much to guess. Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 5  # how many tokens are drafted along the longest path (k); 0 is plain decoding
    max_nodes: int | None = None  # how many draft nodes a tree has at most; none leaves it to the drafter

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES, note="0 is plain decoding")
        check_range(self, "max_nodes", least=0, most=MOST_NODES, note="or absent for the drafter's own choice")


class FixedPolicy(SameBudget):
    """k in every round, or what the request asks for."""

    def __init__(self, options: FixedOptions) -> None:
        super().__init__(options.num_speculative_tokens, request_decides=True, others={"nodes": options.max_nodes})


METHOD = PolicyMethod(
    name="fixed",
    summary="the same draft depth in every round, or the request's own",
    build=lambda options, arms: FixedPolicy(options),
    options=FixedOptions,
    paper=arxiv("2211.17192", "Fast inference from transformers via speculative decoding"),
)
