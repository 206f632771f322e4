"""Node budget and depth by Sequoia's search, from acceptance by rank and a pass's cost by its rows, both measured.

    p_k       how often the k-th child was the accepted one, of the nodes that had so many     `StepEvent.choices`
    T(m, d)   tokens of the best tree of m nodes and depth d                                    `search.py`
    chosen    the (m, d) that makes (drafting d levels + a pass over m rows) / T least; m = 1 is plain decoding

The tree's own shape is the drafter's. The search is run anew every `every` rounds. Chen et al., 2024,
https://arxiv.org/abs/2402.12374. Data in: sequences and events; data out: one budget each.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from outdraft.control.hardware_tree.search import best_tokens
from outdraft.control.shared.costs import PLAIN, Choice, Costs
from outdraft.control.shared.limits import allowed, check_range
from outdraft.core.events import StepEvent
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence

_KEEP = 0.998  # weight of what is known, each node walked
_MEASURED = 16  # rounds that measure the curve
_PRIOR = 4.0  # walked nodes that the prior weighs


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareTreeOptions:
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 8  # the deepest tree
    nodes: int = 48  # draft nodes, at most
    width: int = 8  # ranks that are told apart
    first_depth: int = 4  # until costs and rates are known
    first_nodes: int = 16
    every: int = 64  # rounds between two searches

    def __post_init__(self) -> None:
        check_range("num_speculative_tokens", self.num_speculative_tokens, 0)
        for name in ("nodes", "width", "first_depth", "first_nodes", "every"):
            check_range(name, getattr(self, name), 1)


class HardwareTreePolicy:
    """One tree size for all sequences: rates and costs are the engine's."""

    def __init__(self, options: HardwareTreeOptions) -> None:
        self._options = options
        self.costs = Costs(1)
        self._hits = [0.0] * options.width
        self._walks = [0.0] * options.width
        self._num_rounds = 0
        self.nodes, self.depth = options.first_nodes, min(options.first_depth, options.num_speculative_tokens)
        self._count = 1
        self._chosen: dict[int, Choice] = {}

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
        options = self._options
        sizes = (1, max(1, options.first_nodes // 2), options.first_nodes, options.nodes)
        return min(sizes[self._num_rounds % 4], options.nodes) if self._num_rounds < _MEASURED else None

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The size of the moment; where that is none, now and then a node to see whether it still is."""
        self._count = len(seqs)
        budgets = []
        for seq in seqs:
            depth, nodes = allowed(seq, self.depth), self._measuring or self.nodes
            if not depth and self._num_rounds % self._options.every == 1:
                depth, nodes = (
                    allowed(seq, min(1, self._options.num_speculative_tokens)),
                    1,
                )  # a look at whether plain decoding is still best
            self._chosen[seq.id] = Choice(0, depth)
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
        self._num_rounds += 1
        if self._num_rounds % self._options.every == 0 and self.costs.drafts[0].is_measured:
            self._search()

    def end(self, seqs: Seq[Sequence]) -> None:
        """Forget what was planned."""
        for seq in seqs:
            self._chosen.pop(seq.id, None)
            self.costs.forget(seq.id)

    def _search(self) -> None:
        options, count = self._options, self._count
        tokens = best_tokens(self.rates, options.nodes + 1, options.num_speculative_tokens)
        passes = np.array([self.costs.passes(count * max(m, 1)) / count for m in range(options.nodes + 2)])
        drafts = [0.0] + [self.costs.drafts[0](d) / count for d in range(1, options.num_speculative_tokens + 1)]
        rates = tokens / (passes[None, :] + np.array(drafts)[:, None])
        depth, size = np.unravel_index(int(rates.argmax()), rates.shape)
        self.depth, self.nodes = (int(depth), int(size) - 1) if size > 1 else (0, 1)


def build(options: HardwareTreeOptions, arms: Seq[str]) -> HardwareTreePolicy:
    """Asks the first arm."""
    return HardwareTreePolicy(options)
