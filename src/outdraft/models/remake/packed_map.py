"""A linear map on the native kernels, for inference: packed once, one call a product.

No row's bits depend on the rows beside it. Data in: x [N, in] of any type; data out: [N, out] of the same type.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from outdraft.kernels.decoder.matrix import STEP, PackedMatrix
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.networks.packable import weight_of
from outdraft.nn.linear import LinearMap, RowRange


class PackedMap(nn.Module):
    """The kernels' copy of a linear map, in the instruction set and threads of the target beside which it runs."""

    def __init__(self, source: LinearMap, target: NativeDecoder) -> None:
        super().__init__()
        self._matrix = PackedMatrix(weight_of(source))
        self._threads, self._kind = target.stack.threads, target.kernels
        self.dtype = source.dtype  # that the map had: what its network computes in

    def forward(self, x: Tensor, bulk: Sequence[RowRange] = ()) -> Tensor:
        """[N, in] -> [N, out]."""
        out = self._matrix.multiply(x.to(torch.float32), threads=self._threads, kind=self._kind)
        return out.to(x.dtype)


@torch.no_grad()
def pack_maps(module: nn.Module, target: NativeDecoder) -> None:
    """Put packed maps in place of all that the kernels can hold; the others stay."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LinearMap) and child.shape[1] % STEP == 0:
                setattr(parent, name, PackedMap(child, target))
