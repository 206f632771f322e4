"""A drafter that guesses a block in one pass: a small network reads the pending token and learned masks behind it.

    pending m1 m2 m3 -- mixed, each with those before it -- head --> t1 t2 t3 ...      no guess knows another

What a file of a method needs where the network gives all logits at once (`ChainNetwork.block`). Untrained.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outdraft.core.draft import Draft
from outdraft.core.method import CONTRACT, DrafterMethod
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.models.networks.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskBlockOptions(DrawOptions):
    """How many guesses a block has."""

    block: int = 4


class MaskBlockDrafter(PlainDrafter):
    """One pass a round, whatever the depth."""

    def __init__(self, options: MaskBlockOptions, vocab_size: int, width: int = 16) -> None:
        self._options = options
        draw = torch.Generator().manual_seed(0)
        self._embed, self._masks, self._head = (
            nn.Parameter(torch.randn(size, width, generator=draw), requires_grad=False)
            for size in (vocab_size, options.block, vocab_size)
        )

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        def block(rows: list[int], depths: list[int]) -> Tensor:
            pending = self._embed[[seqs[i].pending for i in rows]]  # [n, D]
            states = torch.tanh(pending[:, None] + self._masks.cumsum(0)[: max(depths)])  # [n, deepest, D]
            return (states[..., None, :] * self._head).sum(-1)  # [n, deepest, V], no row's bits hang on another

        both = zip(seqs, budgets, strict=True)
        depths = [min(self._options.block, usable_depth(seq, budget)) for seq, budget in both]
        cutoffs = cutoffs_of(budgets, self._options.confidence_threshold)
        return grow_chains(seqs, depths, ChainNetwork(block=block), cutoffs, sample=self._options.sample)


def build(options: MaskBlockOptions, port: TargetPort) -> MaskBlockDrafter:
    return MaskBlockDrafter(options, port.facts.vocab_size)


METHOD = DrafterMethod(name="mask_block", summary="-", build=build, options=MaskBlockOptions, contract=CONTRACT)
