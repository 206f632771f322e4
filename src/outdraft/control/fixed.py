"""The same depth in every round: the plain choice of the papers, and the yardstick of every other policy.

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192, where k is called gamma. Data in: sequences; data out: one budget each.
A round emits at most depth + 1 tokens, so near the end of a text the depth shrinks to what can still be used.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.errors import ConfigError
from outdraft.core.events import StepEvent
from outdraft.core.policy import Budget
from outdraft.core.registry import Method, Paper
from outdraft.core.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedOptions:
    """How much to guess. Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 5  # k: draft tokens along the longest path; 0 is plain decoding
    max_nodes: int | None = None  # draft nodes in all, for trees; None: the drafter's own choice

    def __post_init__(self) -> None:
        if self.num_speculative_tokens < 0:
            raise ConfigError(
                f"num_speculative_tokens={self.num_speculative_tokens}: must be at least 0 (0 is plain decoding)"
            )
        if self.max_nodes is not None and self.max_nodes < 0:
            raise ConfigError(f"max_nodes={self.max_nodes}: must be at least 0, or absent for the drafter's own choice")


class FixedPolicy:
    """k in every round, or what the request asks for."""

    def __init__(self, options: FixedOptions) -> None:
        self._options = options

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The request's own k, else the option's; never more than can still be emitted."""
        return [Budget(depth=self._depth(seq), nodes=self._options.max_nodes) for seq in seqs]

    def update(self, events: Seq[StepEvent]) -> None:
        """Learns nothing."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Remembers nothing."""

    def _depth(self, seq: Sequence) -> int:
        wanted = seq.request.num_speculative_tokens
        if wanted is None:
            wanted = self._options.num_speculative_tokens
        return max(0, min(wanted, seq.room - 1))


def build(options: FixedOptions, arms: Seq[str]) -> FixedPolicy:
    """The fixed policy."""
    return FixedPolicy(options)


METHOD = Method(
    name="fixed",
    kind="policy",
    summary="the same draft depth in every round, or the request's own",
    build=build,
    options=FixedOptions,
    paper=Paper(
        title="Fast inference from transformers via speculative decoding",
        year=2022,
        link="https://arxiv.org/abs/2211.17192",
    ),
)
