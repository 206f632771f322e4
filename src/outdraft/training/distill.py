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
    """The recipe's [task] table."""

    loss: str = "forward_kl"
    temperature: float = (
        1.0  # of both distributions in the loss, which is multiplied by its square: gradients keep size
    )
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
        ids = rows[:, :-1]
        with torch.no_grad():
            p = self.target.logits(hidden_states(self.target, ids)).float()
        q = self.module.logits(hidden_states(self.module, ids)).float()
        accepted = acceptance(p, q)
        t = self.temperature
        loss = self.distance(p / t, q / t) * t * t + self.tv_weight * (1 - accepted)
        with torch.no_grad():
            own = F.cross_entropy(q, rows[:, 1:].flatten())
        return torch.stack([loss, accepted, own])
