"""On the fly: estimate acceptance and costs, then guess as deep as the speed-up formula says, zero included.

Liu, Park and Shen, "A drop-in solution for on-the-fly adaptation of speculative decoding in large language models",
2025, https://aclanthology.org/2025.acl-long.482: running estimates of alpha and of the step times, every round the
length (and the drafter, where there are several) with the greatest expected speed-up. Its code is not public; here
alpha is the maximum-likelihood estimate of a truncated geometric distribution, accepted / (accepted + rejections),
which forgets, and the formula is Leviathan's with the measured cost of a pass by its rows:

    E(k) / (draft(k) + pass(k + 1))        E(k) = 1 + alpha + ... + alpha^k

A choice that is never made is never measured, so an arm out of use guesses one token every `retry` rounds. Data in:
sequences and events; data out: one budget each.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import PLAIN, ArmDepth, MeasuredCosts
from outdraft.control.shared.speedup import best_depth
from outdraft.core.events import StepEvent
from outdraft.core.method import Paper, PolicyMethod
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 16  # how many tokens are drafted along the longest path, at most
    window: float = 32.0  # after how many rounds a round counts only 1/e in the estimate
    start: float = 0.7  # the acceptance that is assumed before anything is known; it counts as much as two tokens
    retry: int = 32  # after how many rounds a drafter that is out of use guesses one token again

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "window", least=1)
        check_range(self, "start", least=0, most=1)
        check_range(self, "retry", least=1)


class Alpha:
    """Accepted and rejected tokens of one sequence with one arm, forgetting."""

    __slots__ = ("accepted", "idle", "keep", "rejected")

    def __init__(self, start: float, window: float) -> None:
        self.accepted, self.rejected = 2 * start, 2 * (1 - start)
        self.keep = 1 - 1 / window
        self.idle = 0  # rounds without a guess

    @property
    def value(self) -> float:
        return self.accepted / (self.accepted + self.rejected)

    def add(self, accepted: int, rejected: bool) -> None:
        self.accepted = self.keep * self.accepted + accepted
        self.rejected = self.keep * self.rejected + rejected
        self.idle = 0


class EstimatorPolicy:
    """Costs are the engine's, alphas each sequence's own."""

    def __init__(self, options: EstimatorOptions, arms: Seq[Arm]) -> None:
        self._options = options
        self._num_arms = len(arms)
        self.costs = MeasuredCosts(arms)
        self._alphas: dict[int, list[Alpha]] = {}
        self._chosen: dict[int, ArmDepth] = {}

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The depth and arm with the most expected tokens a second."""
        return [self._plan(seq, len(seqs)) for seq in seqs]

    def update(self, events: Seq[StepEvent]) -> None:
        """Learn what passes cost, and how often each arm's tokens were accepted."""
        self.costs.add(events, self._chosen)
        for event in events:
            chosen = self._chosen.pop(event.seq_id, PLAIN)
            for arm, alpha in enumerate(self._alphas.get(event.seq_id, ())):
                if arm == chosen.arm and event.draft_depth:
                    alpha.add(event.num_accepted, event.rejected)
                else:
                    alpha.idle += 1

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._alphas.pop(seq.id, None)
            self._chosen.pop(seq.id, None)
            self.costs.forget(seq.id)

    def _plan(self, seq: Sequence, count: int) -> Budget:
        options = self._options
        alphas = self._alphas.get(seq.id)
        if alphas is None:
            alphas = [Alpha(options.start, options.window) for _ in range(self._num_arms)]
            self._alphas[seq.id] = alphas
        deepest = allowed(seq, options.num_speculative_tokens)
        choice = PLAIN
        if waiting := [arm for arm, alpha in enumerate(alphas) if alpha.idle >= options.retry and deepest]:
            choice = ArmDepth(waiting[0], 1)
            alphas[waiting[0]].idle = 0
        else:
            most = 0.0
            for arm, alpha in enumerate(alphas):
                depth, rate = self._best(arm, alpha.value, deepest, count)
                if rate > most:
                    choice, most = ArmDepth(arm, depth), rate
        self._chosen[seq.id] = choice
        return Budget(depth=choice.depth, arm=choice.arm)

    def _best(self, arm: int, alpha: float, deepest: int, count: int) -> tuple[int, float]:
        """As if all sequences of the batch did alike. Costs that are not known yet: nothing for the draft."""
        passes, draft = self.costs.passes, self.costs.drafts[arm]
        if not passes.is_measured or not draft.is_measured:
            return min(4, deepest), float("inf")  # measure it
        return best_depth(
            [alpha**k for k in range(1, deepest + 1)], draft_cost=draft.of(count), pass_cost=passes, count=count
        )


METHOD = PolicyMethod(
    name="estimator",
    summary="the depth with the greatest expected speed-up, from running estimates of acceptance and cost",
    build=EstimatorPolicy,
    options=EstimatorOptions,
    paper=Paper(
        title="A drop-in solution for on-the-fly adaptation of speculative decoding in large language models",
        year=2025,
        link="https://aclanthology.org/2025.acl-long.482",
    ),
)
