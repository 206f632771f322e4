"""A search for the skip set whose draft agrees best with the text: mostly random sets, now and then a model's advice.

    trial 1 2 3 ... 24 random | 25 the set of largest mean + 2.5 sigma | 26 ... random
    ends when a score is high enough, nothing better came for long, or enough was tried

Xia et al., "SWIFT", 2024, https://arxiv.org/abs/2410.06916: the settings are theirs. All sets are of one size, so that
the score alone compares them. Data in: scores; data out: the set to try next and the best one so far.
"""

import random
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.skip import Skip
from outdraft.drafters.swift.surrogate import advise
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, kw_only=True)  # without slots, so that it can be joined with other options
class SearchOptions:
    """How long to search and for what. Raises `ConfigError` naming what is out of range."""

    ratio: float = 0.45  # what share of the sublayers is left out
    keep_ends: bool = True  # whether the first and the last layer are always computed
    max_trials: int = 1000  # after how many trials the search ends
    max_fruitless: int = 300  # after how many trials without a better set the search ends
    # the search ends once a set scores more than this: the share of tokens that it would have guessed
    enough: float = 0.95
    # every so many trials, the set is the advice of the Gaussian process instead of a random one
    advice_every: int = 25
    seed: int = 0  # the seed of the random sets

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise ConfigError(f"ratio={self.ratio}: must be between 0 and 1")
        check_range(self, "max_trials", "max_fruitless", "advice_every", least=1)


class Search:
    """One search for a target of `num_layers` layers."""

    def __init__(self, options: SearchOptions, num_layers: int) -> None:
        inner = range(1, num_layers - 1) if options.keep_ends else range(num_layers)
        self._options = options
        self._sublayers = [(layer, half) for layer in inner for half in (0, 1)]  # half 0: attention, 1: feed-forward
        self._size = min(len(self._sublayers), max(1, round(options.ratio * len(self._sublayers))))
        self._rng = random.Random(options.seed)
        self._tried: list[tuple[list[bool], float]] = []
        self._since_best = 0
        by_second = sorted(self._sublayers, key=lambda one: (one[0] % 2 == 0, one))  # layers 1, 3, 5 ..., then 2, 4 ...
        self.best = _skip(by_second[: self._size])
        self.best_score = -1.0  # of nothing yet

    @property
    def num_trials(self) -> int:
        return len(self._tried)

    @property
    def is_over(self) -> bool:
        """Whether the best set stands."""
        options = self._options
        return (
            not self._sublayers
            or self.num_trials >= options.max_trials
            or self._since_best >= options.max_fruitless
            or self.best_score > options.enough
        )

    def trial(self, score: Callable[[Skip], float]) -> None:
        """Score one more set; the first one is that which the search began with."""
        skip = self._next() if self._tried else self.best
        value = score(skip)
        self._tried.append((self._flags(skip), value))
        self._since_best += 1
        if value > self.best_score:
            self.best, self.best_score, self._since_best = skip, value, 0

    def _next(self) -> Skip:
        if len(self._tried) % self._options.advice_every == 0:
            candidates = [self._random() for _ in range(256)]
            return candidates[advise(self._tried, [self._flags(skip) for skip in candidates])]
        return self._random()

    def _random(self) -> Skip:
        return _skip(self._rng.sample(self._sublayers, self._size))

    def _flags(self, skip: Skip) -> list[bool]:
        """Whether each sublayer is left out."""
        return [layer in (skip.mlp if half else skip.attention) for layer, half in self._sublayers]


def _skip(out: Seq[tuple[int, int]]) -> Skip:
    """The set of these sublayers, each a layer and a half."""
    attention, mlp = (frozenset(layer for layer, half in out if half == part) for part in (0, 1))
    return Skip(attention, mlp)
