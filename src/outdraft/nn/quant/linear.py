"""A linear map whose weights are integers of 8 or 4 bits with a scale for each group of inputs
(`kernels/decoder/grid.py`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from outdraft.kernels.decoder import grid
from outdraft.nn.quant.rounded import RoundedMap


class QuantLinear(RoundedMap):
    """x W^T + b. Scales start as NaN: whatever is not loaded or filled shows.

    Fields:
        qweight: int8 [out, in] for 8 bits; uint8 [out, in / 2] for 4, the even input in the low half, each plus 8.
        scales: float32 [out, in / group_size], or [out, 1] for group_size 0. They stay float32 when the model moves.
    """

    qweight: Tensor
    scales: Tensor

    def __init__(
        self,
        num_in: int,
        num_out: int,
        bias: bool,
        dtype: torch.dtype,
        device: torch.device,
        *,
        bits: int,
        group_size: int,
        name: str = "a layer",
    ) -> None:
        grid.require_groups(name, num_in, bits, group_size)
        super().__init__(num_in, num_out, bias, dtype, device)
        self.bits = bits
        self.group_size = group_size
        stored = (num_out, num_in) if bits == 8 else (num_out, num_in // 2)
        groups = num_in // group_size if group_size else 1
        kind = torch.int8 if bits == 8 else torch.uint8
        self.register_buffer("qweight", torch.zeros(stored, dtype=kind, device=device))
        nan = float("nan")
        self.register_buffer("scales", torch.full((num_out, groups), nan, dtype=torch.float32, device=device))

    @torch.no_grad()
    def fill(self, integers: Tensor, scales: Tensor) -> None:
        """Take these integers [out, in] and scales [out, groups]."""
        self.qweight.copy_(grid.pack(integers, self.bits))
        self.scales.copy_(scales)
        self.unpack()

    @torch.no_grad()
    def round(self, weight: Tensor) -> None:
        """Take the nearest integers to a weight [out, in]."""
        scales = grid.find_scales(weight, self.bits, self.group_size)
        self.fill(grid.round_to_grid(weight, scales, self.bits, self.group_size), scales)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Integers times their scales, rounded once: [out, in]."""
        return grid.times_scales(grid.unpack(self.qweight, self.bits), self.scales).to(dtype)

    def on_grid(self) -> tuple[int, Tensor, Tensor]:
        return self.bits, self.qweight, self.scales

    def to_host(self) -> None:
        self.qweight, self.scales = self.qweight.cpu(), self.scales.cpu()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Every `.to()` comes here: scales change their device and never their type."""
        scales = self.scales
        super()._apply(fn, recurse)
        self.scales = scales.to(self.scales.device)
        return self
