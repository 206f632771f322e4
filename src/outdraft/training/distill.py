"""Distil a small decoder from the target: it learns the target's whole distribution at every position, not only one
token.

Zhou et al., "DistillSpec", 2023, https://arxiv.org/abs/2310.08461. The rows come from the corpus and from the target's
own samples (`harvest.py`), because the draft will be asked about texts that the target writes.
Data in: rows [B, T + 1]. Data out: loss, then acceptance (sum of min(p, q)) and the draft's own cross-entropy.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.models.base import Decoder
from outdraft.training.losses import LOSSES, acceptance
from outdraft.training.pretrain import hidden_states


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillOptions:
    """The recipe's [task] table.

    In the loss both distributions are taken at `temperature`, and the loss is multiplied by its square, so that
    gradients keep their size.
    """

    loss: str = "forward_kl"
    temperature: float = 1.0
    tv_weight: float = 0.0  # of the total variation, added to the loss: the rate of rejection itself
    samples_share: float = 0.5  # of the sequences: the target's own samples, if they were harvested
    copies_share: float = 0.0  # of the others: documents that repeat themselves; 0 = as the data file says
    init: bool = False  # start from the weights already in OUT/<name>


class Distill:
    """A draft under a frozen target."""

    def __init__(self, draft: Decoder, target: Decoder, options: DistillOptions) -> None:
        self.module = draft
        self.target = target.requires_grad_(False)
        self.tv_weight = options.tv_weight
        self.temperature = options.temperature
        self.distance: Callable[[Tensor, Tensor], Tensor] = LOSSES[options.loss]

    def loss(self, rows: Tensor) -> Tensor:
        return self.loss_at(rows, slice(None))

    def loss_at(self, rows: Tensor, positions: Tensor | slice) -> Tensor:
        """The same over some of the B * T positions: [B * T] bool, true where the next token counts."""
        ids = rows[:, :-1]
        with torch.no_grad():
            p = self.target.logits(hidden_states(self.target, ids)[positions]).float()
        q = self.module.logits(hidden_states(self.module, ids)[positions]).float()
        accepted = acceptance(p, q)
        t = self.temperature
        loss = self.distance(p / t, q / t) * t * t + self.tv_weight * (1 - accepted)
        with torch.no_grad():
            own = F.cross_entropy(q, rows[:, 1:].flatten()[positions])
        return torch.stack([loss, accepted, own])
