"""A linear map over flat rows, [N, in] -> [N, out]. Parameters start as NaN, so that one that is never loaded is
noticed.

For inference `prepare` packs the weight for oneDNN (1.2 to 2 times faster than the eager product on CPU) and, in exact
mode, fixes a `RowTile`: rows go through the product in pieces of a shape for which every row was seen to get the same
bits whatever stands beside it (`nn/invariance.py` finds it). A prompt chunk ("bulk" rows) is one piece: it always runs
with the same rows, so it needs no tiling. Packing copies the weight: call `prepare` again if the weight changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RowRange = tuple[int, int]  # rows [start, stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTile:
    """Pieces of at most `most` rows, filled up with zero rows to at least `least`; `packed`: through oneDNN."""

    most: int
    least: int
    packed: bool


class LinearMap(nn.Module, ABC):
    """x W^T + b, whatever W is kept as: a subclass says what `matrix()` is and keeps `bias`."""

    bias: nn.Parameter | None  # [out]

    def __init__(self) -> None:
        super().__init__()
        self.packed: Tensor | None = None
        self.tile: RowTile | None = None

    @property
    def is_trained(self) -> bool:
        """Whether the matrix asks for a gradient."""
        return False

    @abstractmethod
    def matrix(self) -> Tensor:
        """W [out, in], in the type of the activations."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """How many outputs and inputs."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The type of the activations."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the rows must be."""

    def forward(self, x: Tensor, bulk: Sequence[RowRange] = ()) -> Tensor:
        """[N, in] -> [N, out]. `bulk`: row ranges that are one piece each, in order."""
        if x.requires_grad or self.is_trained:
            return F.linear(x, self.matrix(), self.bias)
        tile = self.tile
        if tile is None:
            return self.product(x)
        if not bulk:
            return self.tiled(x, tile)
        pieces, done = [], 0
        for start, stop in bulk:
            if done < start:
                pieces.append(self.tiled(x[done:start], tile))
            pieces.append(self.product(x[start:stop]))
            done = stop
        if done < x.shape[0]:
            pieces.append(self.tiled(x[done:], tile))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def product(self, x: Tensor) -> Tensor:
        """The plain product of all rows at once, packed where that is possible."""
        if self.packed is None:
            return F.linear(x, self.matrix(), self.bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out

    def pack(self) -> None:
        """Lay the weight out for oneDNN, if this build and type can."""
        self.packed = pack_weight(self.matrix().detach())

    def unpack(self) -> None:
        self.packed = None

    def tiled(self, x: Tensor, tile: RowTile) -> Tensor:
        """The product of rows that must not depend on each other."""
        num_rows = x.shape[0]
        if tile.least <= num_rows <= tile.most:
            return self.product(x)
        pieces = [self._piece(piece, tile.least) for piece in x.split(tile.most)]  # type: ignore[no-untyped-call]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _piece(self, x: Tensor, least: int) -> Tensor:
        missing = least - x.shape[0]
        if missing <= 0:
            return self.product(x)
        return self.product(F.pad(x, (0, 0, 0, missing)))[: x.shape[0]]


class Linear(LinearMap):
    """The map whose matrix is a parameter."""

    def __init__(self, num_in: int, num_out: int, bias: bool, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        nan = float("nan")
        self.weight = nn.Parameter(torch.full((num_out, num_in), nan, dtype=dtype, device=device))
        self.bias = nn.Parameter(torch.full((num_out,), nan, dtype=dtype, device=device)) if bias else None

    @property
    def is_trained(self) -> bool:
        return self.weight.requires_grad

    def matrix(self) -> Tensor:
        return self.weight

    @property
    def shape(self) -> tuple[int, int]:
        return self.weight.shape[0], self.weight.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.weight.device


def pack_weight(weight: Tensor) -> Tensor | None:
    """oneDNN's own layout of a weight [out, in], or None where there is no such product."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        probe = torch.zeros(1, weight.shape[1], dtype=weight.dtype)
        torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
    except (RuntimeError, AttributeError):
        return None
    return packed
