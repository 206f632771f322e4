"""Weights of 4 and 8 bits that stay packed through PyTorch's own product of bfloat16 rows and 4-bit weights.

    one weight      (u - 8) scale + zero        u: 4 bits; scale and zero: bfloat16, of 32 to 256 inputs of one output
    4 bits, q       u = q + 8, scale, 0
    8 bits, q       16 h + l:   [x | x] times [h + 8 | l]   with [16 scale | scale] and [0 | 8 scale]

So 8 bits are a map of twice the inputs, whose sums are one product. `_weight_int8pack_mm` knows no groups, and CUDA's
gives each output to one thread. The product on CUDA adds in an order that does not depend on the number of rows
(aten/src/ATen/native/cuda/int4mm.cu; measured: docs/gpu.md), so rows need no filling up. It reads the weights once for
each 16 rows: for many rows floats are made for a moment. On a CPU it is another operator with its own layout: tests use
it, the engine does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.kernels.decoder import grid

_GROUPS = (256, 128, 64, 32)  # inputs that may share a scale
_OUTPUTS = {"cuda": 8, "cpu": 16}  # their number must be a multiple of it
_OTHER = "cpu"  # a device with operators and a layout of its own
_AT_ONCE = 1 << 24  # weights made floats at once


def why_not(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> str:
    """Why a map [out, in] on the grid of 4 or 8 bits is held as floats where rows have this type; "": it is not."""
    num_out, num_in = shape
    if dtype != torch.bfloat16:
        return f"PyTorch's product of 4 bits takes bfloat16 rows, not {str(dtype).removeprefix('torch.')}"
    least = _OUTPUTS.get(device.type)
    if least is None or torch.version.hip:
        return f"no product of 4 bits is known on {device.type}{' (ROCm)' if torch.version.hip else ''}"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return "PyTorch's product of 4 bits needs a GPU of compute capability 8.0 or later"
    if num_in % _GROUPS[-1] or num_out % least:
        return f"{num_out} outputs of {num_in} inputs are no multiples of {least} and {_GROUPS[-1]}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FourBits:
    """A packed weight W [out, in] for which `why_not` has no reason, on the device of its rows."""

    weight: Tensor  # in the layout of its device's operator
    pairs: Tensor  # bfloat16 [groups, out, 2]: scale and zero
    is_split: bool  # 8 bits, as high and low halves
    most_rows: ClassVar[int] = 128  # that are multiplied by packed weights

    @classmethod
    def of(cls, bits: int, values: Tensor, scales: Tensor, device: torch.device) -> "FourBits":
        """values: `grid.pack`'s; scales float32 [out, groups]."""
        integers = grid.unpack(values.to(device), bits)  # int8 [out, in]
        scales = scales.to(device)
        num_in = integers.shape[1]
        if scales.shape[1] == 1:  # of all inputs
            largest = next(group for group in _GROUPS if not num_in % group)
            scales = scales.expand(-1, num_in // largest)
        scales = scales.bfloat16()
        if bits == 8:
            numbers = torch.cat(((integers >> 4) + 8, integers & 15), 1)
            zeros = torch.cat((torch.zeros_like(scales), 8 * scales), 1)
            scales = torch.cat((16 * scales, scales), 1)
        else:
            numbers, zeros = integers + 8, torch.zeros_like(scales)
        pairs = torch.stack((scales.T, zeros.T), 2).contiguous()
        return cls(weight=_packed(numbers), pairs=pairs, is_split=bits == 8)

    @property
    def shape(self) -> tuple[int, int]:
        return self.pairs.shape[1], self._num_in // (1 + self.is_split)

    @property
    def num_bytes(self) -> int:
        """What a product of few rows reads."""
        return sum(one.numel() * one.element_size() for one in (self.weight, self.pairs))

    @property
    def rows_apart(self) -> bool:
        """Whether a row has the bits that it has alone, where at most `most_rows` are multiplied."""
        return self.weight.device.type != _OTHER

    def product(self, x: Tensor) -> Tensor:
        """bfloat16 [N, in] -> [N, out]."""
        if len(x) > self.most_rows:
            return torch.cat([F.linear(x, rows) for rows in self._floats()], 1)
        if not len(x):
            return x.new_empty(0, self.shape[0])
        return self._few(torch.cat((x, x), 1) if self.is_split else x.contiguous(), self.pairs)

    def _few(self, x: Tensor, pairs: Tensor) -> Tensor:
        is_other = x.device.type == _OTHER
        multiply = torch._weight_int4pack_mm_for_cpu if is_other else torch._weight_int4pack_mm
        made: Tensor = multiply(x, self.weight, self._num_in // len(pairs), pairs)
        return made

    @property
    def _num_in(self) -> int:
        """With both halves of 8 bits."""
        return 2 * self.weight.numel() * self.weight.element_size() // self.pairs.shape[1]

    def _floats(self) -> Iterator[Tensor]:
        """Rows of W in order, bfloat16 [some, in]: the weights that the product has, but that halves are one number."""
        at = 0
        for numbers in self._numbers():
            scales, zeros = self.pairs[:, at : at + len(numbers)].float().unbind(2)  # [groups, some] each
            groups = numbers.view(len(numbers), len(scales), -1) - 8.0
            rows = (groups * scales.T.unsqueeze(2) + zeros.T.unsqueeze(2)).flatten(1)
            at += len(numbers)
            high, low = rows.chunk(2, 1)
            yield (high + low if self.is_split else rows).bfloat16()

    def _numbers(self) -> Iterator[Tensor]:
        """The 4 bits of some outputs after the other, 0 to 15 [some, in], in the order of the inputs."""
        if self.weight.device.type == _OTHER:  # its layout differs between processors
            one = self.pairs.new_tensor((1, 0)).expand(self._num_in // 32, self.pairs.shape[1], 2)
            rows = torch.eye(self._num_in, dtype=self.pairs.dtype)
            yield self._few(rows, one.contiguous()).T + 8
            return
        step = max(1, _AT_ONCE // (8 * self._num_in))  # of 8 outputs each
        for at in range(0, len(self.weight), step):
            yield read_words(self.weight[at : at + step])


def read_words(words: Tensor) -> Tensor:
    """CUDA's layout int32 [out / 8, in / (32 J), 32 lanes, J] as 0 to 15 [out, in].

    A lane holds, of one output in 8, inputs 0, 8, 16, 24 behind twice its last two bits, then those behind these.
    """
    tiles, steps, _, count = words.shape
    fields = (words.unsqueeze(4) >> torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)) & 15
    split = fields.view(tiles, steps, 8, 4, count, 2, 4)  # output, pair of inputs; odd, eight
    return split.permute(0, 2, 1, 4, 6, 3, 5).reshape(8 * tiles, -1)


def _packed(numbers: Tensor) -> Tensor:
    """0 to 15 [out, in] in the layout of its device's operator."""
    if numbers.device.type == _OTHER:
        return torch._convert_weight_to_int4pack_for_cpu(numbers.int(), 8)
    tiles = next(count for count in (8, 4, 2) if not numbers.shape[1] % (16 * count))
    return torch._convert_weight_to_int4pack(in_bytes(numbers), tiles)


def in_bytes(numbers: Tensor) -> Tensor:
    """0 to 15 [out, in] as CUDA's operator packs them: two to a byte, the even input in the high half."""
    numbers = numbers.to(torch.uint8)
    return (numbers[:, 0::2] << 4) | numbers[:, 1::2]
