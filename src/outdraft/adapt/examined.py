"""Sums over rounds by position: what became of the guesses that a rule looked at, and the rates that follow."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import zip_longest

_COLUMNS = ("reached", "accepted", "near", "said", "sure", "right")


@dataclass(slots=True, kw_only=True)
class Examined:
    """Sums over rounds, each with its weight; a list has one number a position, the first is position 1."""

    rounds: float = 0.0
    reached: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    near: list[float] = field(default_factory=list)  # p(x) / max p
    said: list[float] = field(default_factory=list)  # of those reached, where the drafter said its own probability
    sure: list[float] = field(default_factory=list)  # that probability
    right: list[float] = field(default_factory=list)  # of those said, accepted

    def add(self, accepted: int, near: Seq[float], sure: Seq[float], weight: float = 1.0) -> None:
        """One round that examined len(near) nodes. `sure`: own probabilities of the same nodes, or empty."""
        self.rounds += weight
        for name in _COLUMNS:
            column: list[float] = getattr(self, name)
            column += [0.0] * (len(near) - len(column))
        for i, closeness in enumerate(near):
            self.reached[i] += weight
            self.accepted[i] += weight * (i < accepted)
            self.near[i] += weight * closeness
        for i, own in enumerate(sure):
            self.said[i] += weight
            self.sure[i] += weight * own
            self.right[i] += weight * (i < accepted)

    def scaled(self, factor: float) -> "Examined":
        """The same rounds, each with a weight times as large."""
        columns = {name: [factor * one for one in getattr(self, name)] for name in _COLUMNS}
        return Examined(rounds=factor * self.rounds, **columns)

    def __add__(self, other: "Examined") -> "Examined":
        return Examined.total((self, other))

    @classmethod
    def total(cls, parts: Seq["Examined"]) -> "Examined":
        columns = {
            name: [sum(column) for column in zip_longest(*(getattr(one, name) for one in parts), fillvalue=0.0)]
            for name in _COLUMNS
        }
        return cls(rounds=sum(one.rounds for one in parts), **columns)

    @property
    def acceptance(self) -> list[float]:
        """P(accepted at i | reached i)."""
        return _ratios(self.accepted, self.reached)

    @property
    def hazards(self) -> list[float]:
        """P(first rejected at i | reached i)."""
        return [1 - one for one in self.acceptance]

    @property
    def first_rejection(self) -> list[float]:
        """Rounds whose first rejection fell on position i."""
        return [reached - accepted for reached, accepted in zip(self.reached, self.accepted, strict=True)]

    @property
    def confidence(self) -> list[float]:
        """Mean own probability at i; 0 where none was said."""
        return _ratios(self.sure, self.said)

    @property
    def nearness(self) -> list[float]:
        """Mean of p(x) / max p at i."""
        return _ratios(self.near, self.reached)


@dataclass(slots=True, kw_only=True)
class Bin:
    """Eldest children of which the drafter was about as sure: how many, their summed probability, how many were right.

    Right means that the rule accepted this very child. In a tree the path may go on with a younger sibling, and the
    eldest was wrong then.
    """

    count: int = 0
    sure: float = 0.0
    right: int = 0

    def add(self, sure: float, is_right: bool) -> None:
        """One eldest child."""
        self.count += 1
        self.sure += sure
        self.right += is_right

    def __add__(self, other: "Bin") -> "Bin":
        return Bin(count=self.count + other.count, sure=self.sure + other.sure, right=self.right + other.right)


def _ratios(above: Seq[float], below: Seq[float]) -> list[float]:
    return [a / b if b else 0.0 for a, b in zip(above, below, strict=True)]
