"""Domino's head: a recurrent state of the tokens from the anchor on corrects a slot's scores, at low rank.

    s = GRU(s, embedding of the token before the slot), from 0 on         U + W2 silu(W1 [h; s])

The first slots of a block may keep U. Domino, 2026, https://arxiv.org/abs/2605.29707.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.blocks.correction import Correction, Embed
from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.nn.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class DominoSizes:
    """As config.json spells them."""

    gru_hidden_dim: int = 1024  # of the recurrent state
    emb_dim: int = 256  # rank of the correction
    pure_draft_prefix_len: int = 0  # slots that guess and are not corrected


class PrefixHead(Correction):
    """Of these sizes, behind this backbone."""

    def __init__(self, config: BlockConfig, own: DominoSizes, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        width, self.state, self.first = config.layers.hidden_size, own.gru_hidden_dim, config.first_slot
        self.prefix = own.pure_draft_prefix_len
        self.inputs = Linear(width, 3 * self.state, False, dtype, device)  # of gates: reset, update, new
        self.memory = Linear(self.state, 3 * self.state, False, dtype, device)
        self.mix = Linear(width + self.state, own.emb_dim, False, dtype, device)  # W1
        self.projections = Linear(own.emb_dim, config.draft_vocab_size, False, dtype, device)  # W2
        self.reads = {"inputs.weight": slice(0, width), "mix.weight": slice(0, width)}
        self.embeds = frozenset({"inputs.weight"})

    def summaries(self, h: Tensor, before: Tensor, embed: Embed) -> Tensor:
        """[n, b, D], [n, S] -> the state, and 1 where it corrects the slot: [n, S, state + 1]."""
        s = h.new_zeros(len(h), self.state)
        states = [s] * self.first
        for token in embed(before)[:, self.first :].to(h).unbind(1):
            (r, z, new), (r_s, z_s, new_s) = self.inputs(token).chunk(3, -1), self.memory(s).chunk(3, -1)
            keep = torch.sigmoid(z + z_s)
            s = (1 - keep) * torch.tanh(new + torch.sigmoid(r + r_s) * new_s) + keep * s
            states.append(s)
        corrects = torch.arange(before.shape[1], device=h.device) >= self.first + self.prefix
        return torch.cat((torch.stack(states, 1), corrects.to(h)[None, :, None].expand(len(h), -1, 1)), -1)

    def forward(self, scores: Tensor, h: Tensor, summary: Tensor) -> Tensor:
        """[n, V'], [n, D], [n, state + 1] -> [n, V']."""
        said = nn.functional.silu(self.mix(torch.cat((h, summary[:, :-1].to(h)), -1)))
        added: Tensor = scores + self.projections(said) * summary[:, -1:]
        return added
