"""A linear map over flat rows, [N, in] -> [N, out]. Parameters start as NaN: whatever is not loaded or set shows.

In exact mode the rows are cut in tiles of a shape for which the matrix product was seen to give every row the same bits
whatever stands beside it (see `nn/invariance.py`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Module):
    """x W^T + b."""

    def __init__(self, num_in: int, num_out: int, bias: bool, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        nan = float("nan")
        self.weight = nn.Parameter(torch.full((num_out, num_in), nan, dtype=dtype, device=device))
        self.bias = nn.Parameter(torch.full((num_out,), nan, dtype=dtype, device=device)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] -> [N, out]."""
        return F.linear(x, self.weight, self.bias)
