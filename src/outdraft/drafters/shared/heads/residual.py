"""A residual layer of a head: x + silu(W x + b).

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774. Data in and out: [N, D].
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear


class Residual(nn.Module):
    """x + silu(W x + b): [N, D] -> [N, D]."""

    def __init__(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.linear = Linear(width, width, True, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + rowwise(F.silu, self.linear(x))
        return out


def residuals(count: int, width: int, dtype: torch.dtype, device: torch.device) -> nn.Sequential:
    """So many, one after the other; each is a module of its own."""
    return nn.Sequential(*(Residual(width, dtype, device) for _ in range(count)))
