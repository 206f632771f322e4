"""DSpark's head: the token before a slot adds to the slot's scores, at low rank; and how sure a slot is.

    plain    U + W2 e                           e = W1[x before the slot], of rank r
    gated    U + W2 (sigmoid(G [h; e]) * e)
    rnn      U + W2 tanh(o)                     g, c, o = J [s; e; h]; s = sigmoid(g) s + (1 - sigmoid(g)) tanh(c)

DSpark, DeepSeek, 2026, https://arxiv.org/abs/2607.05147. The confidence is a linear map of [h; e].
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from outdraft.drafters.shared.blocks.correction import Correction, Embed, unfilled
from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.nn.linear import Linear

Kind = Literal["plain", "gated", "rnn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkSizes:
    """Of its own parts."""

    head: Kind = "plain"
    rank: int = 256
    confident: bool = True


class MarkovHead(Correction):
    """Of these sizes, behind this backbone."""

    def __init__(self, config: BlockConfig, own: DsparkSizes, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        kind, rank, width = own.head, own.rank, config.layers.hidden_size
        self.kind, self.rank = kind, rank
        self.embedding = unfilled(config.layers.vocab_size, rank, dtype=dtype, device=device)  # W1
        self.projections = Linear(rank, config.draft_vocab_size, False, dtype, device)  # W2
        inputs = {"plain": 0, "gated": width + rank, "rnn": 2 * rank + width}[kind]
        outputs = 3 * rank if kind == "rnn" else rank
        self.mix = Linear(inputs, outputs, True, dtype, device) if inputs else None
        self.confidence = Linear(width + rank, 1, True, dtype, device) if own.confident else None
        first = 2 * rank if kind == "rnn" else 0
        self.reads = {"mix.weight": slice(first, first + width), "confidence.weight": slice(0, width)}
        self.chance = self._chance if own.confident else None

    def summaries(self, h: Tensor, before: Tensor, embed: Embed) -> Tensor:
        """[n, b, D], [n, S] -> e, or what the recurrence says [n, S, r]; with a confidence e beside it."""
        e = self.embedding[before]  # [n, S, r]
        said = e
        if self.kind == "rnn" and self.mix is not None:
            state, outputs = torch.zeros_like(e[:, 0]), []
            for slot in range(e.shape[1]):
                g, c, o = self.mix(torch.cat((state, e[:, slot], h[:, slot].to(e)), -1)).chunk(3, -1)
                state = torch.sigmoid(g) * state + (1 - torch.sigmoid(g)) * torch.tanh(c)
                outputs.append(torch.tanh(o))
            said = torch.stack(outputs, 1)
        return said if self.confidence is None else torch.cat((said, e), -1)

    def forward(self, scores: Tensor, h: Tensor, summary: Tensor) -> Tensor:
        """[n, V'], [n, D], [n, r or 2 r] -> [n, V']."""
        said = summary[:, : self.rank]
        if self.kind == "gated" and self.mix is not None:
            said = said * torch.sigmoid(self.mix(torch.cat((h.to(said), said), -1)))
        added: Tensor = scores + self.projections(said)
        return added

    def _chance(self, states: Tensor) -> Tensor:
        """States and summaries [n, D + 2 r] -> the logit of a slot's acceptance [n]."""
        assert self.confidence is not None
        width = states.shape[-1] - 2 * self.rank
        found: Tensor = self.confidence(torch.cat((states[:, :width], states[:, -self.rank :]), -1))[:, 0]
        return found
