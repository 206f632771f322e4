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
        if x.dtype == self.weight.dtype:
            return F.rms_norm(x, self.shape, self.weight, self.eps)
        wide = torch.promote_types(x.dtype, self.weight.dtype)  # as PyTorch would, with a warning: under autocast
        return F.rms_norm(x.to(wide), self.shape, self.weight.to(wide), self.eps).to(x.dtype)


class WideRMSNorm(RMSNorm):
    """The same with the weight kept and applied in float32 (or wider), and one rounding at the end.

    Gemma 2 and 3 store a weight w that means 1 + w, which 16 bits could not hold; OLMo 2 and 3 multiply before they
    round.
    """

    def __init__(self, dim: int, eps: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(dim, eps, torch.promote_types(dtype, torch.float32), device)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.to(self.weight.dtype), self.shape, self.weight, self.eps).to(x.dtype)


class LayerNorm(nn.Module):
    """(x - mean) / std * weight + bias; `bias`: whether it has one."""

    bias: nn.Parameter | None

    def __init__(self, dim: int, eps: float, dtype: torch.dtype, device: torch.device, *, bias: bool = True) -> None:
        super().__init__()
        self.shape = (dim,)
        self.eps = eps
        self.weight = nn.Parameter(torch.full((dim,), float("nan"), dtype=dtype, device=device))
        self.bias = nn.Parameter(torch.full((dim,), float("nan"), dtype=dtype, device=device)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
