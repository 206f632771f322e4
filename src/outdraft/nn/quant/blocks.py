"""How GGUF files store weights: blocks of small integers with scales of their own, and the floats that they stand for.

    a row        block block block ...        each of `weights` numbers in `size` bytes
    Q4_K         d, dmin, 8 scales and 8 minima of 6 bits, 256 integers of 4 bits:  w = (d scale) q - (dmin minimum)

The order of every product and difference is ggml's, so that the floats have its bits. Integers of several parts of a
block that share bytes are spread by shifts: [..., n] bytes -> [..., shifts, n].
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.kernels.decoder.blocks import SPANS

_AT_ONCE = 1 << 18  # weights: what lies between bytes and floats stays in the processor's cache
CURVE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # IQ4's 16 levels
_FLOAT4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice what 4-bit floats say


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockType:
    """One type. `floats`: bytes uint8 [B, size] -> float32 [B, weights]; `halves`: where its float16 scales begin."""

    name: str
    weights: int
    size: int
    floats: Callable[[Tensor], Tensor]
    halves: tuple[int, ...]

    def are_finite(self, raw: Tensor) -> bool:
        """Whether all float16 scales of these rows, uint8 [N, bytes of a row], are numbers."""
        blocks = raw.reshape(-1, self.size)
        return not any(bool((blocks[:, at + 1] & 0x7C == 0x7C).any()) for at in self.halves)

    def row_bytes(self, num_in: int) -> int:
        """How many bytes a row of so many weights takes."""
        return num_in // self.weights * self.size


def dequantize(raw: Tensor, kind: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 [N, bytes of a row] -> [N, K]: float32, or that rounded to `dtype`."""
    block = BLOCKS[kind]
    num_in = raw.shape[1] // block.size * block.weights
    made = torch.empty(raw.shape[0], num_in, dtype=dtype, device=raw.device)
    step = max(1, _AT_ONCE // max(1, num_in))
    for start in range(0, len(made), step):
        rows = raw[start : start + step]
        made[start : start + step] = block.floats(rows.reshape(-1, block.size)).view(len(rows), num_in)
    return made


def _half(two: Tensor) -> Tensor:
    """Two bytes to the float16 that they are: [B, 2] -> [B, 1]."""
    return two.contiguous().view(torch.float16).float()


def _parts(values: Tensor, count: int) -> Tensor:
    """[B, n] -> [B, count, n / count]."""
    return values.reshape(len(values), count, -1)


def _shifted(values: Tensor, step: int) -> Tensor:
    """The fields of `step` bits in every byte, the lowest first: [..., n] -> [..., 8 / step, n]."""
    shifts = torch.arange(0, 8, step, dtype=torch.uint8, device=values.device)
    return (values.unsqueeze(-2) >> shifts.unsqueeze(1)) & ((1 << step) - 1)


def _halves(values: Tensor) -> Tensor:
    """All low halves, then all high ones: [..., n] -> [..., 2 n]."""
    return _shifted(values, 4).flatten(-2)


def _bits(values: Tensor) -> Tensor:
    """The bits of whole numbers of several bytes, the lowest first: [B, n] -> [B, 8 n]."""
    return _shifted(values.unsqueeze(-1), 1).flatten(1)


def _scaled(integers: Tensor, scales: Tensor) -> Tensor:
    """Integers [B, ...] of one block after the other times scales [B, G]: float32 [B, G, n]."""
    groups = integers.reshape(*scales.shape, -1)
    return scales.unsqueeze(-1) * groups.float()


def _less(integers: Tensor, scales: Tensor, minima: Tensor) -> Tensor:
    return (_scaled(integers, scales) - minima.unsqueeze(-1)).flatten(1)


def _levels(indices: Tensor, levels: tuple[int, ...]) -> Tensor:
    return torch.tensor(levels, dtype=torch.int8, device=indices.device)[indices.int()]


def _q4_0(block: Tensor) -> Tensor:
    return _scaled(_halves(block[:, 2:]).char() - 8, _half(block[:, :2])).flatten(1)


def _q4_1(block: Tensor) -> Tensor:
    return (_scaled(_halves(block[:, 4:]), _half(block[:, :2])) + _half(block[:, 2:4]).unsqueeze(-1)).flatten(1)


def _q5_0(block: Tensor) -> Tensor:
    integers = _halves(block[:, 6:]) | _bits(block[:, 2:6]) << 4
    return _scaled(integers.char() - 16, _half(block[:, :2])).flatten(1)


def _q5_1(block: Tensor) -> Tensor:
    integers = _halves(block[:, 8:]) | _bits(block[:, 4:8]) << 4
    return (_scaled(integers, _half(block[:, :2])) + _half(block[:, 2:4]).unsqueeze(-1)).flatten(1)


def _q8_0(block: Tensor) -> Tensor:
    return _scaled(block[:, 2:].contiguous().view(torch.int8), _half(block[:, :2])).flatten(1)


def _q2_k(block: Tensor) -> Tensor:
    both, integers, d, least = torch.split(block, [16, 64, 2, 2], 1)
    integers = _shifted(_parts(integers, 2), 2)
    return _less(integers, _half(d) * (both & 15).float(), _half(least) * (both >> 4).float())


def _q3_k(block: Tensor) -> Tensor:
    high, low, scales, d = torch.split(block, [32, 64, 12, 2], 1)
    integers = _shifted(_parts(low, 2), 2).flatten(1) | _shifted(high, 1).flatten(1) << 2
    scales = _halves(scales[:, :8]) | _shifted(scales[:, 8:], 2).flatten(1) << 4
    return _scaled(integers.char() - 4, _half(d) * (scales.char() - 32).float()).flatten(1)


def _six_bits(packed: Tensor) -> tuple[Tensor, Tensor]:
    """The 8 scales and 8 minima of Q4_K and Q5_K: [B, 12] bytes -> float32 [B, 8] each."""
    a, b, c = packed.split(4, 1)  # type: ignore[no-untyped-call]
    scales = torch.cat((a & 63, (c & 15) | (a >> 6) << 4), 1)
    minima = torch.cat((b & 63, (c >> 4) | (b >> 6) << 4), 1)
    return scales.float(), minima.float()


def _q4_k(block: Tensor) -> Tensor:
    d, least, packed, integers = torch.split(block, [2, 2, 12, 128], 1)
    scales, minima = _six_bits(packed)
    return _less(_shifted(_parts(integers, 4), 4), _half(d) * scales, _half(least) * minima)


def _q5_k(block: Tensor) -> Tensor:
    d, least, packed, high, low = torch.split(block, [2, 2, 12, 32, 128], 1)
    scales, minima = _six_bits(packed)
    integers = _shifted(_parts(low, 4), 4).flatten(1) | _shifted(high, 1).flatten(1) << 4
    return _less(integers, _half(d) * scales, _half(least) * minima)


def _q6_k(block: Tensor) -> Tensor:
    low, high, scales, d = torch.split(block, [128, 64, 16, 2], 1)
    integers = _halves(_parts(low, 2)) | _shifted(_parts(high, 2), 2).flatten(2) << 4
    return _scaled(integers.char() - 32, _half(d) * scales.contiguous().view(torch.int8).float()).flatten(1)


def _iq4_nl(block: Tensor) -> Tensor:
    return _scaled(_levels(_halves(block[:, 2:]), CURVE), _half(block[:, :2])).flatten(1)


def _iq4_xs(block: Tensor) -> Tensor:
    d, high, low, indices = torch.split(block, [2, 2, 4, 128], 1)
    scales = _shifted(low.unsqueeze(-1), 4).flatten(1) | _shifted(high.unsqueeze(-1), 2).flatten(1) << 4
    levels = _levels(_halves(_parts(indices, 8)), CURVE)
    return _scaled(levels, _half(d) * (scales.char() - 32).float()).flatten(1)


def _mxfp4(block: Tensor) -> Tensor:
    power = block[:, :1].int()
    halved = torch.where(power < 2, 0x200000 << power, (power - 1) << 23).view(torch.float32)  # 2 ** (power - 128)
    return _scaled(_levels(_halves(block[:, 1:]), _FLOAT4), halved).flatten(1)


def _nvfp4(block: Tensor) -> Tensor:
    told = block[:, :4]
    power, fraction = (told >> 3 & 15).int(), (told & 7).float()
    scales = torch.where(power == 0, fraction * 2**-9, torch.ldexp(1 + fraction / 8, power - 7)) * 0.5
    scales = torch.where(told == 0x7F, 0.0, scales)
    return _scaled(_levels(_halves(_parts(block[:, 4:], 4)), _FLOAT4), scales).flatten(1)


_FLOATS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {  # and where float16 scales begin
    "Q4_0": (_q4_0, (0,)),
    "Q4_1": (_q4_1, (0, 2)),
    "Q5_0": (_q5_0, (0,)),
    "Q5_1": (_q5_1, (0, 2)),
    "Q8_0": (_q8_0, (0,)),
    "Q2_K": (_q2_k, (80, 82)),
    "Q3_K": (_q3_k, (108,)),
    "Q4_K": (_q4_k, (0, 2)),
    "Q5_K": (_q5_k, (0, 2)),
    "Q6_K": (_q6_k, (208,)),
    "IQ4_NL": (_iq4_nl, (0,)),
    "IQ4_XS": (_iq4_xs, (0,)),
    "MXFP4": (_mxfp4, ()),
    "NVFP4": (_nvfp4, ()),
}
BLOCKS = {
    name: BlockType(name=name, weights=weights, size=size, floats=_FLOATS[name][0], halves=_FLOATS[name][1])
    for name, (weights, size) in SPANS.items()
}
