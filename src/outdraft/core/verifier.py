"""The contract of an acceptance rule: a pure function of guesses, target distributions and coins."""

from collections.abc import Sequence as Seq
from typing import Protocol

from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.packing import PackedDrafts
from outdraft.core.request import Request
from outdraft.core.verdict import Verdict


class Verifier(Protocol):
    """`lossless`: the output's distribution is exactly the target's. Wherever a result is shown, a rule that is not is
    named.

    That may depend on a rule's options, so it is the built rule that says it.
    """

    lossless: bool

    def couples(self, request: Request) -> bool:
        """Whether this request's output is the target's own keyed draw at every position.

        Only then may a drafter race on the target's noise (`Sequence.coupled`); under any other rule that would be a
        shared coin, and lossy.
        """

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """`p` [M, V]: the warped target distribution at every draft node, in the order of `packed.nodes`.

        One `Coins` goes in and one `Verdict` comes out for each draft that is not None, in the same order.
        """
