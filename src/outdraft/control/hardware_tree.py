"""Node budget and depth by Sequoia's search, from acceptance by rank and a pass's cost by its rows, both measured.

    p_k       how often the k-th child was the accepted one, of the nodes that had so many     `StepEvent.choices`
    T(m, d)   tokens of the best tree of m nodes and depth d                             `verify/shared/best_trees.py`
    chosen    the (m, d) that makes (drafting d levels + a pass over m rows) / T least; m = 1 is plain decoding

The tree's own shape is the drafter's. The search is run anew every `every` rounds. Chen et al., 2024,
https://arxiv.org/abs/2402.12374. Data in: sequences and events; data out: one budget each.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import inf

from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import PLAIN, ArmDepth, MeasuredCosts
from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range
from outdraft.verify.shared.best_trees import BestTrees, choose_size

_MOST_WORK = 2**27  # nodes^2 x width x depth of a search: it holds up every request, for some 0.2 s at this size
_KEEP = 0.998  # weight of what is known, each node walked
_MEASURED = 16  # rounds that measure the curve
_PRIOR = 4.0  # walked nodes that the prior weighs


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareTreeOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 8  # how many levels a tree has at most
    nodes: int = 48  # how many draft nodes a tree has at most
    width: int = 8  # for how many ranks among siblings acceptance is counted separately
    first_depth: int = 4  # how many levels a tree has until costs and acceptance are known
    first_nodes: int = 16  # how many nodes a tree has until costs and acceptance are known
    every: int = 64  # how many rounds lie between two searches for the best tree

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "nodes", "first_nodes", least=1, most=512)
        check_range(self, "width", "first_depth", least=1, most=64)
        check_range(self, "every", least=1)
        if self.nodes**2 * min(self.width, self.nodes) * self.depth > _MOST_WORK:
            raise ConfigError(
                f"nodes={self.nodes}, width={self.width} and num_speculative_tokens={self.num_speculative_tokens} "
                f"make the search for the best tree too long: nodes x nodes x width x depth may be {_MOST_WORK}; "
                "lower one of them"
            )

    @property
    def depth(self) -> int:
        """Of the deepest tree that is searched: one of so many nodes has no more levels."""
        return min(self.num_speculative_tokens, self.nodes)


class HardwareTreePolicy:
    """One tree size for all sequences: rates and costs are the engine's."""

    def __init__(self, options: HardwareTreeOptions, arm: Arm) -> None:
        self._options = options
        self.costs = MeasuredCosts([arm])
        self._hits = [0.0] * options.width
        self._walks = [0.0] * options.width
        self._num_rounds = 0
        self.nodes = min(options.first_nodes, options.nodes)
        self.depth = min(options.first_depth, options.num_speculative_tokens)
        self._count = 1
        self._chosen: dict[int, ArmDepth] = {}

    @property
    def rates(self) -> list[float]:
        """p_1, p_2, ...: falling by half where nothing is known."""
        rates: list[float] = []
        before = 1.0
        for hits, walks in zip(self._hits, self._walks, strict=True):
            rates.append((hits + _PRIOR * before / 2) / (walks + _PRIOR))
            before = rates[-1]
        return rates

    @property
    def _measuring(self) -> int | None:
        """At the start trees of several sizes, so that the curve is a curve."""
        most, first = self._options.nodes, min(self._options.first_nodes, self._options.nodes)
        return (1, max(1, first // 2), first, most)[self._num_rounds % 4] if self._num_rounds < _MEASURED else None

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The size of the moment; where that is none, now and then a node to see whether it still is."""
        self._count = len(seqs)
        budgets = []
        for seq in seqs:
            depth, nodes = allowed(seq, self.depth), self._measuring or self.nodes
            if not depth and self._num_rounds % max(2, self._options.every) == 1:  # is plain decoding still best?
                depth, nodes = allowed(seq, min(1, self._options.num_speculative_tokens)), 1
            self._chosen[seq.id] = ArmDepth(0, depth)
            budgets.append(Budget(depth=depth, nodes=nodes))
        return budgets

    def update(self, events: Seq[StepEvent]) -> None:
        """Learn rates and costs; search now and then."""
        self.costs.add(events, self._chosen)
        for event in events:
            chosen = self._chosen.pop(event.seq_id, PLAIN)
            for rank, siblings in event.choices if chosen.depth else ():
                for k in range(min(siblings, len(self._walks))):
                    self._walks[k] = _KEEP * self._walks[k] + 1
                    self._hits[k] = _KEEP * self._hits[k] + (rank == k)
        if any(event.num_certain for event in events):
            return  # a pass that reads a prompt shows no costs, so it is none of the rounds that are counted
        self._num_rounds += 1
        if self._num_rounds % self._options.every == 0 and self.costs.drafts[0].is_measured:
            self._search()

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._chosen.pop(seq.id, None)
            self.costs.forget(seq.id)

    def _search(self) -> None:
        options, count = self._options, self._count
        trees = BestTrees(self.rates, max_nodes=options.nodes + 1, max_depth=options.depth)
        passes = [inf, *(self.costs.passes(count * m) for m in range(1, options.nodes + 2))]
        drafts = [0.0, *(self.costs.drafts[0](d, count) for d in range(1, options.depth + 1))]
        size, self.depth = choose_size(trees, drafts, passes)
        self.nodes = max(1, size - 1)


METHOD = PolicyMethod(
    name="hardware_tree",
    summary="Sequoia's tree size and depth for the measured cost of a pass by its rows",
    build=lambda options, arms: HardwareTreePolicy(options, arms[0]),
    options=HardwareTreeOptions,
    paper=arxiv("2402.12374", "Sequoia: scalable, robust, and hardware-aware speculative decoding"),
)
