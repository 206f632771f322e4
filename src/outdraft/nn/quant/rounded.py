"""What all linear maps on few bits share: the reference product.

The weight is made whole in the type of the activations, rounded once more to it, and multiplied as `Linear` multiplies,
packed and tiled alike, so that what is exact there is exact here. The whole copy costs the memory that the integers
would save; a native kernel that multiplies by the integers needs no copy.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.nn.linear import LinearMap, pack_weight


class RoundedMap(LinearMap):
    """x W^T + b. A subclass keeps the integers as buffers."""

    like: Tensor  # [0], of the activations' type and device

    def __init__(self, num_in: int, num_out: int, bias: bool, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.num_in, self.num_out = num_in, num_out
        self.register_buffer("like", torch.empty(0, dtype=dtype, device=device), persistent=False)
        nan = float("nan")
        self.bias = nn.Parameter(torch.full((num_out,), nan, dtype=dtype, device=device)) if bias else None
        self._whole: Tensor | None = None  # W in the activations' type, where it is not packed

    @abstractmethod
    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight that the integers stand for [out, in]: float32, or that rounded to `dtype`."""

    def matrix(self) -> Tensor:
        """The same in the type of the activations; made once."""
        if self._whole is None:
            with torch.inference_mode(False), torch.no_grad():  # a copy made while serving must still serve training
                self._whole = self.dequantize(self.like.dtype)
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
        return self.num_out, self.num_in

    @property
    def dtype(self) -> torch.dtype:
        """The type of the activations."""
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
