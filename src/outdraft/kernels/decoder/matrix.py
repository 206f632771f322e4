"""One packed weight and its product with a few rows.

    bits 16   bfloat16 weights, activations rounded to bfloat16, float32 sums
    bits  8   one scale an output; activations as bytes with one scale a row
    bits 8, 4 in groups   one scale for each `group` inputs; activations as bytes with one scale for each 128 inputs
                          where the groups allow it, else for each 32

Data in: x [R, K] float32; data out: [R, N] float32.
"""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.kernels.declared import CLinear
from outdraft.kernels.decoder.blocks import BlockWeight
from outdraft.kernels.library import check, require_library
from outdraft.options.errors import CapabilityError

STEP = 32  # inputs that the kernels take at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A weight [N, K] as it is stored, ready to be packed; the tensors must live until it has been."""

    bits: int
    values: Tensor  # bf16 [N, K], int8 [N, K], or uint8 [N, K / 2]: low nibble = even input, value = nibble - 8
    scales: Tensor | None = None  # float32 [N, 1] or [N, K / group]
    bias: Tensor | None = None  # float32 [N]
    group: int = 0  # 0: one scale an output

    def __post_init__(self) -> None:
        if self.num_in % STEP:
            raise CapabilityError(
                f"the native kernels need a number of inputs that is a multiple of {STEP}; this weight has "
                f"{self.num_in}"
            )
        if self.group and (self.group % STEP or self.num_in % self.group):
            raise CapabilityError(
                f"native kernels take groups of {STEP} inputs or of multiples of that which divide {self.num_in}; "
                f"this weight has groups of {self.group}"
            )

    @property
    def num_out(self) -> int:
        return self.values.shape[0]

    @property
    def num_in(self) -> int:
        return self.values.shape[1] * (2 if self.bits == 4 else 1)

    def describe(self) -> CLinear:
        return CLinear(
            self.bits,
            self.num_out,
            self.num_in,
            self.group,
            self.values.data_ptr(),
            self.scales.data_ptr() if self.scales is not None else None,
            self.bias.data_ptr() if self.bias is not None else None,
        )


Packable = Weight | BlockWeight


class PackedMatrix:
    """A weight in the kernels' layout."""

    def __init__(self, weight: Packable) -> None:
        self._native = native = require_library()
        self.num_in, self.num_out = weight.num_in, weight.num_out
        self._handle = check(native.od_matrix_new(ctypes.byref(weight.describe())))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._native.od_matrix_free(self._handle)

    @property
    def num_bytes(self) -> int:
        """How many bytes of the matrix a product reads."""
        return int(self._native.od_matrix_bytes(self._handle))

    def multiply(self, x: Tensor, *, threads: int = 1, kind: str = "") -> Tensor:
        """x [R, K] float32 -> [R, N]."""
        x = x.contiguous()
        out = torch.empty(x.shape[0], self.num_out)
        check(
            self._native.od_matrix_multiply(
                self._handle, x.data_ptr(), x.shape[0], out.data_ptr(), threads, kind.encode()
            )
        )
        return out
