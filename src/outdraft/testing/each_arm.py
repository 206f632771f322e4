"""A policy for proofs: a drafter that holds several is asked for a guess of each in turn, whether it pays or not.

Whose turn it is follows from how long the text is, so from nothing that the coming token could bend.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.shared.budgets import SameBudget, allowed
from outdraft.core.method import PolicyMethod
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EachArmOptions(PolicyOptions):
    """How much every arm guesses."""

    num_speculative_tokens: int = 4  # how many tokens every guess has at most


class EachArm(SameBudget):
    """The same depth for each arm."""

    def __init__(self, depth: int, num_arms: int) -> None:
        super().__init__(depth)
        self.num_arms = num_arms

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        return [Budget(depth=allowed(seq, self.depth), arm=len(seq.tokens) % self.num_arms) for seq in seqs]


METHOD = PolicyMethod(
    name="each_arm",
    summary="every drafter of several in turn, for proofs",
    build=lambda options, arms: EachArm(options.num_speculative_tokens, max(1, len(arms))),
    options=EachArmOptions,
)
