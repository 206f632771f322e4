"""PyTorch's Muon for the matrices and its AdamW for the rest, as one optimiser, with one schedule.

Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon/): the momentum of a matrix is replaced by a nearly
orthogonal matrix of the same row and column space, so that all directions are learned at one speed; scaled as large as
AdamW's step (Liu et al. 2025, https://arxiv.org/abs/2502.16982). Embeddings, heads and vectors take AdamW. Moments are
float32, as the parameters are; what computes in bfloat16 does so under autocast.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from outdraft.core.errors import ConfigError
from outdraft.training.config import LoopConfig


class Optimizer:
    """One step for parameters that have their gradients."""

    def __init__(self, parameters: Iterable[nn.Parameter], config: LoopConfig, vocab_size: int = 0) -> None:
        self.parameters = list(parameters)
        matrices = [
            p for p in self.parameters if config.muon_lr > 0 and p.dim() == 2 and vocab_size not in p.shape
        ]  # what has a side as long as the vocabulary is a table
        taken = {id(p) for p in matrices}
        rest = [p for p in self.parameters if id(p) not in taken]
        decay = config.weight_decay
        self._parts: list[tuple[torch.optim.Optimizer, float]] = []
        if matrices:
            if not hasattr(torch.optim, "Muon"):
                raise ConfigError(
                    f"muon_lr={config.muon_lr:g} needs PyTorch 2.9 or later, and this is {torch.__version__}: set it "
                    "to 0, so that AdamW trains everything"
                )
            muon = torch.optim.Muon(matrices, lr=config.muon_lr, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
            self._parts.append((muon, config.muon_lr))
        if rest:
            groups = [
                {"params": [p for p in rest if p.dim() > 1], "weight_decay": decay},
                {"params": [p for p in rest if p.dim() <= 1], "weight_decay": 0.0},
            ]
            adam = torch.optim.AdamW([group for group in groups if group["params"]], lr=config.lr, betas=(0.9, 0.95))
            self._parts.append((adam, config.lr))

    def step(self, factor: float) -> None:
        """One update; `factor` in 0..1 is the schedule's share of the peak rates."""
        for part, rate in self._parts:
            for group in part.param_groups:
                group["lr"] = rate * factor
            part.step()

    def clear(self) -> None:
        """Forget the gradients."""
        for part, _ in self._parts:
            part.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, Any]]:
        """Everything that a resumed run needs."""
        return [part.state_dict() for part, _ in self._parts]

    def load_state(self, state: list[dict[str, Any]]) -> None:
        """Take over a saved state."""
        for (part, _), saved in zip(self._parts, state, strict=True):
            part.load_state_dict(saved)
