"""A bandit over drafter and length: use the arm with the most tokens a second, and try those that have been measured
too rarely.

Hou et al., "BanditSpec: adaptive speculative decoding via bandit algorithms", 2025, https://arxiv.org/abs/2505.15141.

    ucb    play the arm with the greatest  rate + exploration * sqrt(2 ln t / n)      rate = its tokens / its seconds
    exp3   play arm i with probability     (1 - g) w_i / sum w + g / K                w_i *= exp(g reward / (p_i K))

Rewards are rates over the best rate seen, so they lie in [0, 1]; seconds are measured. A rate is a ratio of sums, not
a mean of ratios: long rounds count as long. `discount` below 1 forgets, for texts that change. One arm is played for a
whole batch, so that its time is its own. It knows nothing of how lengths are related, so it learns slowly. Data in:
sequences and events; data out: one budget each.
"""

import math
import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

from outdraft.control.shared.budgets import allowed
from outdraft.core.events import StepEvent, step_times
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class BanditOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 16  # the largest length that is played; longer ones in `lengths` are cut to it
    lengths: Seq[int] = (0, 1, 2, 4, 8)  # the draft lengths among which the bandit chooses; 0 is plain decoding
    # "ucb" plays the length with the greatest upper confidence bound; "exp3" draws one by exponential weights
    algorithm: Literal["ucb", "exp3"] = "ucb"
    # "ucb": the weight of the bonus for lengths that were played seldom; "exp3": the share of rounds drawn evenly
    exploration: float = 0.2
    # by what the past is multiplied in each round; below 1 the bandit forgets, 1 keeps everything
    discount: float = 1.0
    seed: int = 0  # the seed of the draws of "exp3"; no text depends on it

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        object.__setattr__(self, "lengths", tuple(self.lengths))
        if not self.lengths:
            raise ConfigError("lengths=(): give at least one")
        check_range(self, "lengths", least=0, most=MOST_NODES)
        if self.algorithm not in ("ucb", "exp3"):
            raise ConfigError(f"algorithm={self.algorithm!r}: it is 'ucb' or 'exp3'")
        check_range(self, "exploration", least=0, most=1e6)
        check_range(self, "discount", least=0.5, most=1)


class BanditPolicy:
    """Sums of each arm, over all sequences of the engine."""

    def __init__(self, options: BanditOptions, num_arms: int) -> None:
        self._options = options
        lengths = sorted({min(k, options.num_speculative_tokens) for k in options.lengths})
        self.arms = [(arm, k) for arm in range(num_arms) for k in lengths if k or not arm]
        self.plays = [0.0] * len(self.arms)
        self.tokens = [0.0] * len(self.arms)
        self.seconds = [0.0] * len(self.arms)
        self._logs = [0.0] * len(self.arms)  # log w of exp3
        self._chances = [1 / len(self.arms)] * len(self.arms)
        self._dice = random.Random(options.seed)
        self._most = 0.0
        self._played: int | None = None

    @property
    def rates(self) -> list[float]:
        """Tokens a second of each arm; infinite where it was never played."""
        return [made / took if took else math.inf for made, took in zip(self.tokens, self.seconds, strict=True)]

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        played = self._ucb() if self._options.algorithm == "ucb" else self._exp3()
        arm, depth = self.arms[played]
        budgets = [Budget(depth=allowed(seq, depth), arm=arm) for seq in seqs]
        # Cut short by requests of their own length or by the end of a text, an arm is worth what it then brings. Where
        # no text may have a draft, all arms are plain decoding, and the round says nothing of this one.
        self._played = played if not depth or any(budget.depth for budget in budgets) else None
        return budgets

    def update(self, events: Seq[StepEvent]) -> None:
        played, self._played = self._played, None
        times = step_times(events)
        seconds = times.draft + times.target + times.rest
        if played is None or seconds <= 0 or any(event.num_certain for event in events):
            return
        self.enter(played, sum(len(event.tokens) for event in events), seconds)

    def enter(self, played: int, tokens: int, seconds: float) -> None:
        """One round with an arm: the tokens that it made, in so many seconds (above 0)."""
        for sums in (self.plays, self.tokens, self.seconds):
            sums[:] = [value * self._options.discount for value in sums]
        self.plays[played] += 1
        self.tokens[played] += tokens
        self.seconds[played] += seconds
        rate = tokens / seconds
        self._most = max(self._most * self._options.discount, rate)
        if self._options.algorithm == "exp3":
            self._logs = [log * self._options.discount for log in self._logs]
            gain = self._options.exploration * rate / self._most
            self._logs[played] += gain / (self._chances[played] * len(self.arms))

    def end(self, seqs: Seq[Sequence]) -> None:
        """Remembers no sequence."""

    def _ucb(self) -> int:
        """Each arm once, then by its upper confidence bound."""
        if (fresh := next((i for i, count in enumerate(self.plays) if count < 0.5), None)) is not None:
            return fresh
        total = math.log(max(sum(self.plays), 2))
        rates = self.rates
        best, weight = max(rates), self._options.exploration
        bounds = [rate / best + weight * math.sqrt(2 * total / n) for rate, n in zip(rates, self.plays, strict=True)]
        return bounds.index(max(bounds))

    def _exp3(self) -> int:
        top, count, even = max(self._logs), len(self.arms), min(1.0, self._options.exploration)
        weights = [math.exp(log - top) for log in self._logs]
        total = sum(weights)
        self._chances = [(1 - even) * weight / total + even / count for weight in weights]
        return self._dice.choices(range(count), self._chances)[0]


METHOD = PolicyMethod(
    name="bandit",
    summary="UCB or EXP3 over drafter and length; the reward is tokens a measured second",
    build=lambda options, arms: BanditPolicy(options, len(arms)),
    options=BanditOptions,
    paper=arxiv("2505.15141", "BanditSpec: adaptive speculative decoding via bandit algorithms"),
)
