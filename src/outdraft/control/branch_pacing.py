"""Draft while some branch is likely enough to survive; the required probability follows from whether the last guess
was accepted.

Xu et al., "EdgeLLM: fast on-device LLM inference with speculative decoding", 2025 (first "LLMCad", 2023,
https://arxiv.org/abs/2309.04255). The branch with the greatest acceptance probability is expanded next, and drafting
falls back to verification once the cumulative probability of the best branch is below theta:

    whole guess accepted   theta * fall      the drafter is doing better than it thinks: go on longer
    any rejection          theta * rise      it is over-confident: verify earlier

The order of expansion is the drafter's (`edgellm`: the likeliest branch first); a branch ends by `Budget.survival`.
Data in: sequences and events; data out: one budget each, with a theta for every sequence.
"""

from dataclasses import dataclass

from outdraft.control.shared.budgets import BudgetByState, allowed
from outdraft.core.events import StepEvent
from outdraft.core.method import Paper, PolicyMethod
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range

_RANGE = (0.02, 0.95)  # of theta: it must be able to come back


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPacingOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 16  # how many tokens are drafted along the longest path, at most
    nodes: int | None = None  # how many draft nodes a tree has at most; none leaves it to the drafter
    theta: float = 0.5  # the probability below which drafting ends, at the start of each sequence
    fall: float = 0.9  # by what that probability is multiplied after a guess that was accepted whole
    rise: float = 1.1  # by what that probability is multiplied after a rejection

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "nodes", least=1, most=MOST_NODES)
        check_range(self, "theta", least=_RANGE[0], most=_RANGE[1])
        check_range(self, "fall", least=0.1, most=1)
        check_range(self, "rise", least=1, most=10)


class BranchPacingPolicy(BudgetByState[BranchPacingOptions, float]):
    """The state of a sequence is its theta, below which a branch is not continued."""

    def _new(self) -> float:
        return self._options.theta

    def _budget(self, seq: Sequence, state: float) -> Budget:
        options = self._options
        return Budget(depth=allowed(seq, options.num_speculative_tokens), nodes=options.nodes, survival=state)

    def _learn(self, state: float, event: StepEvent) -> float:
        """Pace the sequence by its last guess."""
        if not event.draft_depth:
            return state
        theta = state * (self._options.rise if event.rejected else self._options.fall)
        return min(max(theta, _RANGE[0]), _RANGE[1])


METHOD = PolicyMethod(
    name="branch_pacing",
    summary="draft while a branch is likely enough to survive, paced by the last guesses",
    build=lambda options, arms: BranchPacingPolicy(options),
    options=BranchPacingOptions,
    paper=Paper(
        title="EdgeLLM: fast on-device LLM inference with speculative decoding",
        year=2025,
        link="https://arxiv.org/abs/2309.04255",
    ),
)
