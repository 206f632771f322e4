"""Limits of a dynamic tree: how deep it is expanded, and how many nodes are left to verify, shared by the batch.

Li et al., "EAGLE-2: faster inference of language models with dynamic draft trees", 2024,
https://arxiv.org/abs/2406.16858: the most probable paths of a level are expanded for `num_speculative_tokens` levels,
and the best `nodes` of all are verified (60 with the root). Expansion and ranking are the drafter's
(`drafters/shared/trees/growth.py`), how many survive is decided here: `batch_nodes` is what one pass may verify,
so a larger batch gets smaller trees. Data in: sequences; data out: one budget each.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from outdraft.control.shared.budgets import SameBudget
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicTreeOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 6  # how many levels a tree has at most; the paper takes 5 to 7
    nodes: int = 59  # how many draft nodes one tree has at most
    batch_nodes: int = 240  # how many draft nodes all trees of a pass have together at most

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "nodes", least=1, most=MOST_NODES)
        check_range(self, "batch_nodes", least=1)


class DynamicTreePolicy(SameBudget):
    """The drafter's own probabilities decide the shape."""

    def __init__(self, options: DynamicTreeOptions) -> None:
        super().__init__(options.num_speculative_tokens)
        self._options = options

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The same limits for each sequence, all within what one pass may verify."""
        nodes = min(self._options.nodes, max(1, self._options.batch_nodes // max(1, len(seqs))))
        return [replace(budget, nodes=nodes) for budget in super().plan(seqs)]


METHOD = PolicyMethod(
    name="dynamic_tree",
    summary="EAGLE-2's limits of a tree: levels, nodes to verify, shared by the batch",
    build=lambda options, arms: DynamicTreePolicy(options),
    options=DynamicTreeOptions,
    paper=arxiv("2406.16858", "EAGLE-2: faster inference of language models with dynamic draft trees"),
)
