"""Two more after a guess that was accepted whole, one fewer after any other: Hugging Face's "heuristic" schedule.

Gante, "Assisted generation: a new direction toward low-latency text generation", 2023,
https://huggingface.co/blog/assisted-generation. Data in: sequences and events; data out: one budget each, with a depth
of its own for every sequence.
"""

from dataclasses import dataclass

from outdraft.control.shared.budgets import BudgetByState, allowed
from outdraft.core.events import StepEvent
from outdraft.core.method import Paper, PolicyMethod
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class HeuristicOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 20  # how many tokens are drafted along the longest path, at most
    start: int = 5  # how many tokens the first guess of a sequence has
    rise: int = 2  # how many tokens are added after a guess that was accepted whole
    fall: int = 1  # how many tokens are taken away after any other guess

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "start", "rise", "fall", least=1, most=MOST_NODES)


class HeuristicPolicy(BudgetByState[HeuristicOptions, int]):
    """The state of a sequence is its depth."""

    def _new(self) -> int:
        return self._options.start

    def _budget(self, seq: Sequence, state: int) -> Budget:
        return Budget(depth=allowed(seq, min(self._options.num_speculative_tokens, state)))

    def _learn(self, state: int, event: StepEvent) -> int:
        """Rise and fall; a round in which nothing was drafted says nothing."""
        options = self._options
        if not event.draft_depth:
            return state
        if event.num_accepted == event.draft_depth:
            return max(1, min(state + options.rise, options.num_speculative_tokens))
        return max(1, state - options.fall)


METHOD = PolicyMethod(
    name="heuristic",
    summary="two tokens more after a guess accepted whole, one fewer after any other",
    build=lambda options, arms: HeuristicPolicy(options),
    options=HeuristicOptions,
    paper=Paper(
        title="Assisted generation: a new direction toward low-latency text generation",
        year=2023,
        link="https://huggingface.co/blog/assisted-generation",
    ),
)
