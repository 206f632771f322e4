"""Weights to the blocks of small integers that GGUF files store: the inverse of `nn/quant/blocks.py`.

    floats [N, K] -> groups of 16 or 32 -> scales by least squares (`block_search`) -> integers -> bytes [N, row]

The errors of large weights count more: their squares are weighted by |w| plus the group's root mean square.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.nn.quant.block_search import find_scale, find_scale_and_least, index_of, inverse, to_levels, to_whole
from outdraft.nn.quant.blocks import BLOCKS, CURVE

_LEVELS = torch.tensor(CURVE)
_AT_ONCE = 1 << 18  # weights: what lies between floats and bytes stays in the processor's cache


@torch.no_grad()
def quantize(rows: Tensor, kind: str) -> Tensor:
    """float32 [N, K] -> uint8 [N, bytes of a row], in blocks of the type `kind` (a key of `QUANTIZERS`).

    K is a multiple of the type's block, and all numbers are finite.
    """
    block = BLOCKS[kind]
    made = torch.empty(len(rows), block.row_bytes(rows.shape[1]), dtype=torch.uint8, device=rows.device)
    step = max(1, _AT_ONCE // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        part = rows[start : start + step].float()
        made[start : start + step] = QUANTIZERS[kind](part.reshape(-1, block.weights)).view(len(part), -1)
    return made


def _half(scale: Tensor) -> tuple[Tensor, Tensor]:
    """[B, 1] -> the number that float16 makes of it, and its two bytes."""
    half = scale.half()
    return half.float(), half.view(torch.uint8)


def _joined(fields: Tensor, step: int) -> Tensor:
    """Fields of `step` bits to bytes, the lowest first: [..., 8 / step, n] -> [..., n]."""
    shifts = torch.arange(0, 8, step, dtype=torch.uint8, device=fields.device).unsqueeze(1)
    return (fields << shifts).sum(-2, dtype=torch.uint8)


def _split(codes: Tensor, step: int, *shape: int) -> Tensor:
    """Codes [B, n] as `shape`, fields of `step` bits joined: [B, bytes]."""
    return _joined((codes & ((1 << step) - 1)).view(len(codes), *shape), step).flatten(1)


def _around(count: int, middle: float, step: float) -> list[float]:
    return [middle + step * i for i in range(-count, count + 1)]


def _size(x: Tensor) -> Tensor:
    return x.abs() + x.square().mean(-1, keepdim=True).sqrt()


def _one_scale(x: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    """Blocks [B, n] of one scale: its bytes, and codes from 0."""
    nearest = to_whole(low, high)
    d, raw = _half(find_scale(x, _size(x), nearest, _around(9, low, 0.1)))
    return raw, (nearest(x * inverse(d)) - low).byte()


def _one_scale_and_least(x: Tensor, high: int) -> tuple[Tensor, Tensor]:
    scale, least = find_scale_and_least(x, _size(x), high, _around(10, high, 0.1), below_zero=False)
    (d, raw), (m, raw_m) = _half(scale), _half(least)
    return torch.cat((raw, raw_m), 1), to_whole(0, high)((x - m) * inverse(d)).byte()


def _low_and_high(codes: Tensor) -> Tensor:
    """5 bits a code of 32: the fifth ones of all, then the four of each."""
    return torch.cat((_split(codes >> 4, 1, 4, 8, 1), _split(codes, 4, 2, 16)), 1)


def _q4_0(x: Tensor) -> Tensor:
    raw, codes = _one_scale(x, -8, 7)
    return torch.cat((raw, _split(codes, 4, 2, 16)), 1)


def _q4_1(x: Tensor) -> Tensor:
    raw, codes = _one_scale_and_least(x, 15)
    return torch.cat((raw, _split(codes, 4, 2, 16)), 1)


def _q5_0(x: Tensor) -> Tensor:
    raw, codes = _one_scale(x, -16, 15)
    return torch.cat((raw, _low_and_high(codes)), 1)


def _q5_1(x: Tensor) -> Tensor:
    raw, codes = _one_scale_and_least(x, 31)
    return torch.cat((raw, _low_and_high(codes)), 1)


def _q8_0(x: Tensor) -> Tensor:
    d, raw = _half(x.abs().amax(-1, keepdim=True) / 127)  # on 8 bits a search finds nothing
    return torch.cat((raw, to_whole(-127, 127)(x * inverse(d)).char().view(torch.uint8)), 1)


def _signed_scales(scales: Tensor, low: int, high: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scales [B, G] as whole numbers times one: its bytes, codes [B, G] from 0, and what they stand for [B, G, 1]."""
    peak = scales.gather(-1, scales.abs().argmax(-1, keepdim=True))
    d, raw = _half(peak / low)
    whole = to_whole(low, high)(scales * inverse(d))
    return raw, (whole - low).byte(), (d * whole).unsqueeze(-1)


def _q3_k(x: Tensor) -> Tensor:
    groups, nearest = x.view(-1, 16, 16), to_whole(-4, 3)
    found = find_scale(groups, _size(groups), nearest, _around(9, -4, 0.1)).squeeze(-1)
    raw, scales, d = _signed_scales(found, -32, 31)
    codes = (nearest(groups * inverse(d)) + 4).byte().flatten(1)
    parts = _split(codes >> 2, 1, 8, 32), _split(codes, 2, 2, 4, 32)
    return torch.cat((*parts, _split(scales, 4, 2, 8), _split(scales >> 4, 2, 4, 4), raw), 1)


def _q6_k(x: Tensor) -> Tensor:
    groups, nearest = x.view(-1, 16, 16), to_whole(-32, 31)
    found = find_scale(groups, _size(groups), nearest, _around(9, -32, 0.1)).squeeze(-1)
    raw, scales, d = _signed_scales(found, -128, 127)
    codes = (nearest(groups * inverse(d)) + 32).byte().flatten(1)
    return torch.cat((_split(codes, 4, 2, 2, 64), _split(codes >> 4, 2, 2, 4, 32), scales ^ 128, raw), 1)


def _both(x: Tensor, size: int, high: int, most: int, tops: Seq[float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scales and minima of groups of `size` as whole numbers up to `most`: the bytes of what multiplies both, scales
    and minima [B, G], and the codes of the weights [B, n]."""
    groups = x.view(len(x), -1, size)
    found = find_scale_and_least(groups, _size(groups), high, tops, below_zero=True)
    raw, whole, made = [], [], []
    for one in (found[0].squeeze(-1), -found[1].squeeze(-1)):
        d, its = _half(one.amax(-1, keepdim=True) / most)
        raw.append(its)
        whole.append(to_whole(0, most)(one * inverse(d)).byte())
        made.append((d * whole[-1].float()).unsqueeze(-1))
    codes = to_whole(0, high)((groups + made[1]) * inverse(made[0])).byte().flatten(1)
    return torch.cat(raw, 1), whole[0], whole[1], codes


def _q2_k(x: Tensor) -> Tensor:
    raw, scales, minima, codes = _both(x, 16, 3, 15, _around(8, 3.25, 0.1))
    return torch.cat((scales | minima << 4, _split(codes, 2, 2, 4, 32), raw), 1)


def _six_bits(scales: Tensor, minima: Tensor) -> Tensor:
    """8 scales and 8 minima of 6 bits in 12 bytes; the last four of each have their upper two in the first eight."""
    low = torch.cat((scales[:, :4] | scales[:, 4:] >> 4 << 6, minima[:, :4] | minima[:, 4:] >> 4 << 6), 1)
    return torch.cat((low, scales[:, 4:] & 15 | minima[:, 4:] << 4), 1)


def _q4_k(x: Tensor) -> Tensor:
    raw, scales, minima, codes = _both(x, 32, 15, 63, _around(10, 15, 0.1))
    return torch.cat((raw, _six_bits(scales, minima), _split(codes, 4, 4, 2, 32)), 1)


def _q5_k(x: Tensor) -> Tensor:
    raw, scales, minima, codes = _both(x, 32, 31, 63, _around(8, 31.25, 0.1))
    high = _split(codes >> 4, 1, 8, 32)
    return torch.cat((raw, _six_bits(scales, minima), high, _split(codes, 4, 4, 2, 32)), 1)


def _on_curve(groups: Tensor) -> Tensor:
    """Scales [..., 1] of groups on the levels of IQ4."""
    tops = _around(7, CURVE[0], 1)
    return find_scale(groups, _size(groups), to_levels(_LEVELS), [*tops, -CURVE[0]])


def _iq4_nl(x: Tensor) -> Tensor:
    d, raw = _half(_on_curve(x))
    return torch.cat((raw, _split(index_of(_LEVELS, x * inverse(d)).byte(), 4, 2, 16)), 1)


def _iq4_xs(x: Tensor) -> Tensor:
    groups = x.view(-1, 8, 32)
    raw, scales, d = _signed_scales(_on_curve(groups).squeeze(-1), -32, 31)
    codes = index_of(_LEVELS, groups * inverse(d)).byte().flatten(1)
    high, low = _split(scales >> 4, 2, 2, 4, 1), _split(scales, 4, 4, 2, 1)
    return torch.cat((raw, high, low, _split(codes, 4, 8, 2, 16)), 1)


QUANTIZERS: dict[str, Callable[[Tensor], Tensor]] = {  # float32 [B, weights of a block] -> uint8 [B, bytes of a block]
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
