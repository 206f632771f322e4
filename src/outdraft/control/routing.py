"""Which drafter guesses: the one with the most expected tokens for its measured cost. The depth is given.

    worth(arm) = (1 + mean accepted of its last rounds) / (its drafting + a pass over its rows)    plain: 1 / pass(1)

Hybrids of a suffix index and a model route by the index's own score (Oliaro et al., "SuffixDecoding: extreme
speculative decoding for emerging AI applications", 2024, https://arxiv.org/abs/2411.04975); this routes by what came of
it, so any drafters can stand side by side. An arm that was not asked for `retry` rounds is asked once. Data in:
sequences and events; data out: one budget each.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import PLAIN, ArmDepth, MeasuredCosts
from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 5  # how many tokens every guess has at most
    window: float = 16.0  # after how many rounds a round counts only 1/e in what a drafter is worth
    retry: int = 32  # after how many rounds a drafter that is out of use is asked once

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "window", "retry", least=1)


class _Route:
    """What one arm has brought one sequence."""

    __slots__ = ("accepted", "idle", "nodes")

    def __init__(self, depth: int) -> None:
        self.accepted = float(depth)  # a round, at first all
        self.nodes = float(depth)  # draft nodes a round
        self.idle = 0


class RoutingPolicy:
    """Routes are each sequence's own, costs the engine's."""

    def __init__(self, options: RoutingOptions, arms: Seq[Arm]) -> None:
        self._options = options
        self._num_arms = len(arms)
        self.costs = MeasuredCosts(arms)
        self._routes: dict[int, list[_Route]] = {}
        self._chosen: dict[int, ArmDepth] = {}

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The best arm for each sequence, as if all did alike."""
        budgets = []
        for seq in seqs:
            depth = allowed(seq, self._options.num_speculative_tokens)
            choice = self._route(seq.id, depth, len(seqs)) if depth else PLAIN
            self._chosen[seq.id] = choice
            budgets.append(Budget(depth=choice.depth, arm=choice.arm))
        return budgets

    def update(self, events: Seq[StepEvent]) -> None:
        """Learn what the asked arms brought."""
        self.costs.add(events, self._chosen)
        share = 1 / self._options.window
        for event in events:
            chosen = self._chosen.pop(event.seq_id, PLAIN)
            for arm, route in enumerate(self._routes.get(event.seq_id, ())):
                route.idle += 1
                if chosen.depth and arm == chosen.arm:
                    route.accepted += share * (event.num_accepted - route.accepted)
                    route.nodes += share * (event.num_nodes - 1 - route.nodes)
                    route.idle = 0

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._routes.pop(seq.id, None)
            self._chosen.pop(seq.id, None)
            self.costs.forget(seq.id)

    def _route(self, seq: int, depth: int, count: int) -> ArmDepth:
        routes = self._routes.get(seq)
        if routes is None:
            routes = self._routes[seq] = [_Route(depth) for _ in range(self._num_arms)]
        for arm, route in enumerate(routes):
            if not self.costs.drafts[arm].is_measured or route.idle >= self._options.retry:
                return ArmDepth(arm, depth)
        passes = self.costs.passes
        best, most = PLAIN, count / passes(count)
        for arm, route in enumerate(routes):
            seconds = self.costs.drafts[arm](depth, count) + passes(count * (1 + route.nodes))
            if count * (1 + route.accepted) / seconds > most:
                best, most = ArmDepth(arm, depth), count * (1 + route.accepted) / seconds
        return best


METHOD = PolicyMethod(
    name="routing",
    summary="the drafter with the most expected tokens for its measured cost, at a given depth",
    build=RoutingPolicy,
    options=RoutingOptions,
    paper=arxiv("2411.04975", "SuffixDecoding: extreme speculative decoding for emerging AI applications"),
)
