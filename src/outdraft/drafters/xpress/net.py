"""xPress's head: the tokens before a block's slots, mixed along the block at low rank, correct the slots' scores.

    x = In [Dh h; Dg (mean of the block's h); E[token before the slot]]         of rank r
    x_k += sum over j <= k of L[:, k, j] x_j        x += Down (silu(Gate x) * Up x)         U + R x

IBM, 2026, https://arxiv.org/abs/2608.02438. Published servers refine all slots at once, several times; after as many
passes as there are slots that is the walk along them, which is what drafts here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.blocks.correction import Correction, Embed, unfilled
from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.nn.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class XpressSizes:
    """As config.json spells them."""

    xpress_rank: int = 256  # r
    xpress_mlp_ratio: int = 2  # of the inner width of Up and Gate to r
    num_jacobi_passes: int = 6  # of other servers


class Refiner(Correction):
    """Of these sizes, behind this backbone."""

    reads_all = True

    def __init__(self, config: BlockConfig, own: XpressSizes, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        r, inner, size = own.xpress_rank, own.xpress_rank * own.xpress_mlp_ratio, config.block_size

        def linear(num_in: int, num_out: int) -> Linear:
            return Linear(num_in, num_out, False, dtype, device)

        self.embedding = unfilled(config.layers.vocab_size, r, dtype=dtype, device=device)  # E
        self.mix = unfilled(r, size, size, dtype=dtype, device=device)  # L
        width = config.layers.hidden_size
        self.down_h, self.down_g, self.inputs = linear(width, r), linear(width, r), linear(3 * r, r)
        self.gate, self.up, self.down = linear(r, inner), linear(r, inner), linear(inner, r)
        self.projections = linear(r, config.draft_vocab_size)  # R
        self.reads = dict.fromkeys(("down_h.weight", "down_g.weight"), slice(0, width))

    def summaries(self, h: Tensor, before: Tensor, embed: Embed) -> Tensor:
        """[n, b, D], [n, S] -> what the refiner says of each slot [n, S, r]."""
        size, e = before.shape[1], self.embedding[before.flatten()]  # [n * S, r]
        whole = self.down_g(h.mean(1).to(e)).repeat_interleave(size, 0)
        x = self.inputs(torch.cat((self.down_h(h[:, :size].flatten(0, 1).to(e)), whole, e), -1))
        along = self.mix.tril().permute(1, 2, 0)[:size, :size]  # [S, S, r]
        x = x + (along * x.view(len(h), 1, size, x.shape[-1])).sum(2).flatten(0, 1)
        refined: Tensor = x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return refined.view(len(h), size, x.shape[-1])

    def forward(self, scores: Tensor, h: Tensor, summary: Tensor) -> Tensor:
        """[n, V'], [n, D], [n, r] -> [n, V']."""
        added: Tensor = scores + self.projections(summary)
        return added
