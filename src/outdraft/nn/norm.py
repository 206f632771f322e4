"""Normalisation of hidden states, per row: RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016).

Data in and out: [..., D]. Every row is normalised by itself, so the result cannot depend on the rows beside it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """x / rms(x) * weight. No mean is taken away and there is no bias."""

    def __init__(self, dim: int, eps: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.shape = (dim,)
        self.eps = eps
        self.weight = nn.Parameter(torch.full((dim,), float("nan"), dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.shape, self.weight, self.eps)


class LayerNorm(nn.Module):
    """(x - mean) / std * weight + bias."""

    def __init__(self, dim: int, eps: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.shape = (dim,)
        self.eps = eps
        self.weight = nn.Parameter(torch.full((dim,), float("nan"), dtype=dtype, device=device))
        self.bias = nn.Parameter(torch.full((dim,), float("nan"), dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
