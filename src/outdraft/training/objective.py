"""What the training loop asks for: what is learned, rows to learn it from, and how good it is now.

A target, a draft and a head differ in these only; the loop (`training/loop.py`) is the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn


class Objective(Protocol):
    """What is learned: a module and its loss."""

    @property
    def module(self) -> nn.Module:
        """Its parameters that require a gradient are trained."""

    def total(self, rows: Any) -> Tensor:
        """Rows -> [2 + k]: the loss to minimise, summed, and over how much; then k numbers to watch.

        A step minimises the sum of its passes' losses over all workers, divided by the sum of their weights.
        """

    @property
    def memory(self) -> dict[str, Tensor]:
        """What it keeps from step to step beside parameters: it goes into checkpoints, and is set in place."""

    def settle(self, add_up: Callable[[Tensor], Tensor]) -> None:
        """A step is over. `add_up`: the sum of a tensor over all workers, in place."""


class Batches(Protocol):
    """Training data: a pure function of the step."""

    def rows(self, step: int, first: int, count: int, length: int) -> Any:
        """Rows first..first + count of the batch of this step, each of `length` tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How good it is now. The higher the score, the better."""

    score: float
    line: str  # for the progress report
    numbers: Mapping[str, Any] = field(default_factory=dict)  # for the log
