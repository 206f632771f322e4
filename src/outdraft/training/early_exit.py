"""Train an exit head on a frozen target: the state after E layers, as the final norm and head should see it.

Data in: rows [B, T + 1]. Data out: forward KL from the target's distribution, then acceptance, and the acceptance that
the plain early exit (no head) would have had.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.drafters.early_exit.net import EarlyExitConfig, EarlyExitHead
from outdraft.models.base import Decoder
from outdraft.training.attention import TrainingContext
from outdraft.training.losses import acceptance, forward_kl


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyExitTraining:
    """The recipe's [task] table."""

    exit_layer: int
    inner_size: int
    samples_share: float = 0.5
    init: bool = False


def new_exit_head(options: EarlyExitTraining, target: Decoder, seed: int) -> EarlyExitHead:
    """A fresh head in the target's type; its output starts as its input."""
    config = EarlyExitConfig(
        exit_layer=options.exit_layer,
        hidden_size=target.config.hidden_size,
        inner_size=options.inner_size,
        norm_eps=target.config.norm_eps,
    )
    head = EarlyExitHead(config, target.embedding.dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.norm.weight.fill_(1)
        head.up.weight.copy_(torch.randn(head.up.weight.shape, generator=generator) * config.hidden_size**-0.5)
        head.down.weight.zero_()
    return head


class EarlyExit:
    """An exit head under a frozen target."""

    def __init__(self, head: EarlyExitHead, target: Decoder) -> None:
        self.module = head
        self.target = target.requires_grad_(False)

    def loss(self, rows: Tensor) -> Tensor:
        ids = rows[:, :-1]
        batch, length = ids.shape
        target, layer = self.target, self.module.config.exit_layer
        with torch.no_grad():
            positions = torch.arange(length).repeat(batch)
            h = target.embed(ids.flatten(), positions)
            out = target.run(h, positions, TrainingContext(batch, length), taps=(layer,))
            p, plain = target.logits(out.hidden), target.logits(out.taps[layer])
            without = acceptance(p, plain)
        q = target.logits(self.module(out.taps[layer]))
        with torch.no_grad():
            accepted = acceptance(p, q)
        return torch.stack([forward_kl(p, q), accepted, without])
