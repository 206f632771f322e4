"""The contract of an acceptance rule: a pure function of guesses, target laws and coins."""

from collections.abc import Sequence as Seq
from typing import Protocol

from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.packing import PackedDrafts
from outdraft.core.verdict import Verdict


class Verifier(Protocol):
    """`lossless`: the output's law is exactly the target's. Rules that are not say so wherever a result is shown."""

    lossless: bool

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """`p` [M, V]: the warped target law at every draft node, in the order of `packed.nodes`; one `Coins` a draft."""
        ...
