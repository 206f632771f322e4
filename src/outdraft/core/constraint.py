"""A constraint: which tokens may follow the output so far. One object belongs to one text and moves along with it.

    output      a b c        passed to `advance`, one token at a time, in order
    a draft       `- x - y   asked by `allowed([])`, `allowed([x])`, `allowed([x, y])`: what may follow each node

Target and drafter are masked alike at every node of a draft (`sampling/masks.py`), so every method and every lossless
rule keeps the masked distribution, and greedy and seeded text is plain decoding's. A request brings a function that
makes the constraint (`Request.constraint`), because each of its `n` texts needs one of its own.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


class Constraint(Protocol):
    """What may be written. `allowed` may be asked from two threads at once, never while `advance` runs.

    One that has `is_dear`, true while its masks take long, is drafted for no more until they are quick again.
    """

    def advance(self, token: int) -> None:
        """Go on by one emitted token: every one is passed, in order, also one that ends the text."""

    def allowed(self, path: Seq[int]) -> Tensor:
        """Which tokens may follow the output and then the draft tokens `path`: [V] bool, not to be changed.

        Any path may be asked, also one that is itself forbidden, or goes on behind the end of the text: then any answer
        will do, but it must not raise. Where the output may end, its ends (the end-of-text token) are allowed tokens.
        """


@runtime_checkable
class Form(Constraint, Protocol):
    """A constraint that knows where a text is complete, and what must come next (a grammar: `codecs/grammar`)."""

    def is_over(self) -> bool:
        """Whether nothing may follow the output but an end: the text ends here, and no end token is written."""

    def forced(self) -> Seq[int]:
        """Tokens that spell the only continuation there is, or begin it; empty where there is a choice.

        They are a guess (the same text may be spelt by other tokens), drafted for free (`decode/forced.py`).
        """


@dataclass(frozen=True, slots=True)
class Beyond:
    """A constraint as it will be if `tokens` follow the output: for drafters that guess behind what is not decided."""

    constraint: Constraint
    tokens: tuple[int, ...]

    def advance(self, token: int) -> None:
        """An imagined text is never written on. Raises `NotImplementedError`."""
        raise NotImplementedError("an imagined text emits no tokens")

    def allowed(self, path: Seq[int]) -> Tensor:
        """[V] bool: what may follow `tokens` and then `path`."""
        return self.constraint.allowed([*self.tokens, *path])
