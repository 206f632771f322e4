"""DFlash2's selector of one candidate a slot.

    S(c | a) = U(c) + sum over r of A[a] * (P h) * B[c]     c among the top K of a slot, a the token before it: -inf for
                                                            all other tokens

"DFlash 2", Inco AI, 2026, https://inco.ai/blog/dflash2/, as speculators 0.9 has it; DFlash: Chen et al., 2026,
https://arxiv.org/abs/2602.06036.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outdraft.core.learner import Beside
from outdraft.drafters.shared.blocks.correction import Correction, Embed, Scores, unfilled, weighed
from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.nn.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Dflash2Sizes:
    """As config.json spells them."""

    conv_kernel_size: int = 2  # rows of a block that a convolution reads
    conv_group_size: int = 16  # channels that share a moving kernel
    selector_rank: int = 256  # of what tokens say of each other
    selector_top_k: int = 16  # candidates of a slot


class CandidateSelector(Correction):
    """Of these sizes, behind this backbone."""

    learns_scores = False

    def __init__(self, config: BlockConfig, own: Dflash2Sizes, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        width, rank = config.layers.hidden_size, own.selector_rank
        self.top, self.reads = own.selector_top_k, {"hidden_projection.weight": slice(0, width)}
        self.predecessor_codebook = unfilled(config.layers.vocab_size, rank, dtype=dtype, device=device)  # A
        self.successor_codebook = unfilled(config.draft_vocab_size, rank, dtype=dtype, device=device)  # B
        self.hidden_projection = Linear(width, rank, False, dtype, device)  # P

    def summaries(self, h: Tensor, before: Tensor, embed: Embed) -> Tensor:
        """A[a] of the token before each slot: [n, S] -> [n, S, r]."""
        return self.predecessor_codebook[before]

    def forward(self, scores: Tensor, h: Tensor, summary: Tensor) -> Tensor:
        """[n, V], [n, D], [n, r] -> [n, V], -inf but for the candidates."""
        best = scores.topk(min(self.top, scores.shape[-1]), -1)
        pairs = self._pairs(h, summary, best.indices)
        return torch.full_like(scores, -torch.inf).scatter(-1, best.indices, best.values + pairs.to(scores))

    def _pairs(self, h: Tensor, summary: Tensor, candidates: Tensor) -> Tensor:
        """[n, D], [n, r], [n, K] -> what the predecessor says of each candidate [n, K]."""
        asked = summary * self.hidden_projection(h.to(summary))  # [n, r]
        return torch.einsum("nr,nkr->nk", asked, self.successor_codebook[candidates])

    def beside(
        self, scores: Scores, h: Tensor, before: Tensor, after: Tensor, rows: Tensor, weights: Tensor, known: Tensor
    ) -> Seq[Beside]:
        """Cross-entropy over a slot's candidates, behind the text's token: the next one takes the weakest's place."""
        found = []
        for slot in range(before.shape[1]):
            kept = (rows[:, slot] >= 0) & (after[:, slot] >= 0)
            states, tokens = h[kept, slot], after[kept, slot]
            said = scores(states)
            candidates = said.detach().topk(min(self.top, said.shape[-1]), -1).indices
            is_there = candidates == tokens[:, None]
            place = torch.where(is_there.any(-1), is_there.float().argmax(-1), candidates.shape[-1] - 1)
            candidates = candidates.scatter(-1, place[:, None], tokens[:, None])
            pairs = self._pairs(states, self.predecessor_codebook[before[kept, slot]], candidates)
            far = nn.functional.cross_entropy((said.gather(-1, candidates) + pairs).float(), place, reduction="none")
            found.append(weighed(far, rows[kept, slot], weights[kept, slot]))
        return found
