"""A linear map whose weights are integers of 8 or 4 bits with a scale for each group of inputs
(`kernels/decoder/grid.py`).

This is the reference: the weight is made whole in the type of the activations, rounded once more to it, and multiplied
as `Linear` multiplies, packed and tiled alike, so that what is exact there is exact here. The whole copy costs the
memory that the integers would save; a native kernel that multiplies by the integers needs no copy.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.kernels.decoder import grid
from outdraft.nn.linear import LinearMap, pack_weight


class QuantLinear(LinearMap):
    """x W^T + b. Scales start as NaN: whatever is not loaded or filled shows.

    Fields:
        qweight: int8 [out, in] for 8 bits; uint8 [out, in / 2] for 4, the even input in the low half, each plus 8.
        scales: float32 [out, in / group_size], or [out, 1] for group_size 0. They stay float32 when the model moves.
    """

    qweight: Tensor
    scales: Tensor
    like: Tensor  # [0], of the activations' type and device

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
        super().__init__()
        grid.require_groups(name, num_in, bits, group_size)
        self.bits = bits
        self.group_size = group_size
        self.num_in = num_in
        nan = float("nan")
        stored = (num_out, num_in) if bits == 8 else (num_out, num_in // 2)
        groups = num_in // group_size if group_size else 1
        kind = torch.int8 if bits == 8 else torch.uint8
        self.register_buffer("qweight", torch.zeros(stored, dtype=kind, device=device))
        self.register_buffer("scales", torch.full((num_out, groups), nan, dtype=torch.float32, device=device))
        self.register_buffer("like", torch.empty(0, dtype=dtype, device=device), persistent=False)
        self.bias = nn.Parameter(torch.full((num_out,), nan, dtype=dtype, device=device)) if bias else None
        self._whole: Tensor | None = None  # W in the activations' type, where it is not packed

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

    def dequantize(self) -> Tensor:
        """The weight that the integers stand for: float32 [out, in]."""
        return grid.times_scales(grid.unpack(self.qweight, self.bits), self.scales)

    def matrix(self) -> Tensor:
        """The same, rounded to the type of the activations; made once."""
        if self._whole is None:
            with torch.inference_mode(False), torch.no_grad():  # a copy made while serving must still serve training
                self._whole = self.dequantize().to(self.like.dtype)
        return self._whole

    def pack(self) -> None:
        """Lay the weight out for oneDNN, if this build and type can, as of the present integers."""
        self._whole = None
        self.packed = pack_weight(self.matrix())
        if self.packed is not None:
            self._whole = None

    def unpack(self) -> None:
        """Forget every copy of the weight."""
        self.packed = None
        self._whole = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.qweight.shape[0], self.num_in

    @property
    def dtype(self) -> torch.dtype:
        """The type of the activations."""
        return self.like.dtype

    @property
    def device(self) -> torch.device:
        """Where the integers are."""
        return self.qweight.device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Every `.to()` comes here: scales change their device and never their type."""
        scales = self.scales
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.scales = scales.to(self.scales.device)
        self.unpack()
        return self
