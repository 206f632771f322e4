"""What all linear maps on few bits share: the reference product.

The weight is made whole in the type of the activations, rounded once more to it, and multiplied as `Linear` multiplies,
packed and tiled alike, so that what is exact there is exact here. The whole copy costs the memory that the integers
would save; a native kernel that multiplies by the integers needs no copy. Nor does CUDA where rows need not be exact
(`four_bits.py`): the device then holds the packed weight alone, and the host the integers.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.nn.linear import LinearMap, RowTile, pack_weight

_log = logging.getLogger(__name__)


class RoundedMap(LinearMap):
    """x W^T + b. A subclass keeps the integers as buffers."""

    like: Tensor  # [0], of the activations' type and device
    packs_on = ("cuda",)  # the devices on which a product takes the packed weight

    def __init__(self, num_in: int, num_out: int, bias: bool, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.num_in, self.num_out = num_in, num_out
        self.register_buffer("like", torch.empty(0, dtype=dtype, device=device), persistent=False)
        nan = float("nan")
        self.bias = nn.Parameter(torch.full((num_out,), nan, dtype=dtype, device=device)) if bias else None
        self._whole: Tensor | None = None  # W in the activations' type, where it is not packed
        self.small: Any = None  # `FourBits`, where that computes
        self.why_floats = ""

    @abstractmethod
    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight that the integers stand for [out, in]: float32, or that rounded to `dtype`; where they are."""

    def off_grid(self) -> str:
        """Why this is no map of 4 or 8 bits on our own grid; "" where it is."""
        return ""

    @abstractmethod
    def on_grid(self) -> tuple[int, Tensor, Tensor]:
        """Of a map that is on our own grid: bits, integers as `grid.pack` has them, scales."""

    @abstractmethod
    def to_host(self) -> None:
        """Keep the integers in the memory of the host."""

    def matrix(self) -> Tensor:
        """The same in the type of the activations; made once."""
        if self._whole is None:
            with torch.inference_mode(False), torch.no_grad():  # a copy made while serving must still serve training
                self._whole = self.dequantize(self.like.dtype).to(self.device)
        return self._whole

    def pack(self) -> None:
        """Lay the weight out for the product of the device, or for oneDNN, if this build, type and shape can."""
        self.unpack()
        if self.device.type in self.packs_on and self._pack_small():
            return
        self.packed = pack_weight(self.matrix())
        if self.packed is not None:
            self._whole = None

    def _pack_small(self) -> bool:
        from outdraft.nn.quant.four_bits import FourBits, why_not  # for GPUs alone

        self.why_floats = self.off_grid() or why_not(self.shape, self.dtype, self.device)
        if not self.why_floats:
            self.small = FourBits.of(*self.on_grid(), self.device)
            self.to_host()
        return self.small is not None

    def unpack(self) -> None:
        """Forget every copy of the weight."""
        self.small = None
        self.packed = None
        self._whole = None

    def product(self, x: Tensor) -> Tensor:
        if self.small is None:
            return super().product(x)
        made: Tensor = self.small.product(x)
        return made if self.bias is None else made + self.bias

    @property
    def rows_apart(self) -> bool:
        """Whether rows have the bits that they have alone without being filled up to a tile."""
        return self.small is not None and self.small.rows_apart

    def tiled(self, x: Tensor, tile: RowTile) -> Tensor:
        if not self.rows_apart:
            return super().tiled(x, tile)
        if len(x) <= self.small.most_rows:
            return self.product(x)
        parts = x.split(self.small.most_rows)  # type: ignore[no-untyped-call]
        return torch.cat([self.product(rows) for rows in parts])

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_out, self.num_in

    @property
    def dtype(self) -> torch.dtype:
        return self.like.dtype

    @property
    def device(self) -> torch.device:
        """Where the integers are."""
        return self.like.device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Every `.to()` comes here."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.unpack()
        return self


def tell_floats(network: nn.Module) -> None:
    """A line of the log for the maps that a GPU holds as floats, though their weights are rounded."""
    held = [one for one in network.modules() if isinstance(one, RoundedMap) and one.small is None]
    if held:
        size = sum(one.num_in * one.num_out * one.dtype.itemsize for one in held)
        why = "; ".join(sorted({one.why_floats for one in held}))
        _log.warning(
            "%d rounded maps are held as floats on %s, %.0f MB: %s", len(held), held[0].device, size / 1e6, why
        )
