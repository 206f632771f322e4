"""The contract of a policy: how much to guess, decided before drafting, for each sequence. 0 is plain decoding."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from outdraft.core.calibration import Calibration
from outdraft.core.draft import Draft
from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence
from outdraft.options.base import DraftShape


@dataclass(frozen=True, slots=True, kw_only=True)
class StateJudge:
    """A learned estimate, from a drafter's hidden states, of the chance that the target accepts its tokens."""

    # states [n, W] that have read n drafted tokens, the drafter's own probabilities of these [n] -> [n], each in 0 .. 1
    chances: Callable[[Tensor, Tensor], Tensor]
    reads_probability: bool = False  # False: the probabilities need not be computed, and are 1
    least: int = 1  # tokens that are drafted before it may end a guess


# sequences, their drafts -> how many nodes of each are verified, the pending one included. Whether a drawn token stays
# may depend on the tokens before it, and not on itself
Cut = Callable[[Seq[Sequence], Seq[Draft]], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """An upper limit for one guess."""

    depth: int  # draft tokens along the longest path (k, gamma)
    nodes: int | None = None  # draft nodes in all; None: the drafter's own choice
    confidence: float = 0.0  # a token of which the drafter is less sure is kept and ends its branch; 0: never
    survival: float = 0.0  # the same for a path: it ends where the product of its tokens' probabilities falls below
    calibration: Calibration | None = None  # its chances are multiplied for `survival`; None: the bare probabilities
    judge: StateJudge | None = None  # or: its chances are; for an arm that hands its states over
    confident: bool = False  # the drafter reports its confidence for the rule, and no branch ends by it
    # asked once about all drafts of the round that bring it and are more than their root, but for drafters that go on
    # while the pass runs; a drafter does not look
    cut: Cut | None = None
    arm: int = 0  # which of the drafter's arms is to guess (`DrafterMethod.arms`); a drafter without arms does not look
    resting: frozenset[int] = frozenset()  # arms that are not asked about this sequence again: they may let go of it

    @property
    def wants_confidence(self) -> bool:
        """Whether the drafter has to report its confidence in each token."""
        return self.confident or self.confidence > 0 or self.survival > 0

    def chance(self, sure: float) -> float:
        """The factor of a token of this confidence in its path's survival."""
        return sure if self.calibration is None else self.calibration(sure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One drafter that a policy may choose: the engine's own, or one of those that it holds."""

    name: str
    peek: Callable[[Sequence, Budget], Draft] | None = None  # its guess, for next to nothing; it need not be used
    home: Path | None = None  # where its own network lies, and beside it what was learned of it; None: it has none
    ends_early: bool = False  # `Budget.survival` makes its guesses no dearer
    one_pass: bool = False  # a guess of any depth takes the same pass of its network
    hands_states: bool = False  # it gives its hidden states to `Budget.judge`
    foretells: bool = False  # its confidences in chains are given before their tokens are drawn
    shape: DraftShape | None = None  # what it proposes; None: what the drafter that holds it proposes
    listens: bool = False  # it needs hidden states of every pass, also where it does not guess, and may leave a text


class Policy(Protocol):
    """Never changes the output's distribution, only its cost."""

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """One budget for each sequence."""

    def update(self, events: Seq[StepEvent]) -> None:
        """Learn from the results of a step, which have its times."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """These sequences are over (finished or cancelled)."""


@runtime_checkable
class Spares(Protocol):
    """A policy that knows which arms it will not ask about a new text, so that they need not observe it."""

    def spare(self, seq: Sequence, crowd: int) -> frozenset[int]:
        """Arms that rest from the first token of this text on. `crowd`: texts that run or wait, this one included, at
        most as many as there are seats.

        Called when a text joins, before its prompt is read, and again each time that it has to join anew.
        """


def spared_by(policy: Policy, seq: Sequence, crowd: int) -> frozenset[int]:
    """`Spares.spare`; an empty set for any other policy."""
    return policy.spare(seq, crowd) if isinstance(policy, Spares) else frozenset()


class Keeps(Protocol):
    """A policy whose measurements the next engine of the same model on the same machine can begin with."""

    def keep(self) -> Mapping[str, Any] | None:
        """What it has learned, as plain data; None before it has learned anything."""

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Begin with the data of `keep`. Raises `ValueError`, `KeyError` or `TypeError` for others, unchanged.

        It may change which arm guesses and how much, and never a greedy or a seeded text.
        """
