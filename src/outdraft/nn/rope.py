"""Rotary positions: RoFormer (Su et al. 2021, https://arxiv.org/abs/2104.09864) and the ways to stretch it.

A head's first `dim` channels are pairs (i, i + dim/2); pair i is turned by position * frequency[i]. Scalings only
change the frequencies: linear (Chen et al. 2023), llama3 (Llama 3.1's by-parts rule), yarn (Peng et al. 2023,
https://arxiv.org/abs/2309.00071, which also multiplies by an attention factor), longrope (Ding et al. 2024,
https://arxiv.org/abs/2402.13753: a divisor for each pair, of two sets, one for short texts and one for long ones).
(`dynamic` is the plain rule up to the model's context length. Only a draft model with a streaming cache goes beyond it,
and there no row sees another from further away than the cache has rows.)
A text is short or long as a whole, by the most that it may become: positions of a long one are given `original_max_len`
higher than they are, and stand in the table behind those of short ones (`RopeConfig.first_position`).

    longrope's table   [ short 0 .. original - 1 | long 0, 1, 2, ... ]

Data: positions [N] -> cos and signed sin [N, 1, dim], computed once a pass and used by every layer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 256  # positions computed at once
ROPE_KINDS = ("default", "linear", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """How positions turn the heads. `dim`: how many channels of a head are turned."""

    dim: int
    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    original_max_len: int | None = None  # llama3, yarn, longrope: the context length before stretching
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float | None = None  # yarn, longrope; None: derived from the factor
    mscale: float | None = None  # yarn
    mscale_all_dim: float | None = None  # yarn
    truncate: bool = True  # yarn
    short_factors: tuple[float, ...] = ()  # longrope: what divides each pair's frequency, [dim / 2]
    long_factors: tuple[float, ...] = ()  # longrope
    query_growth: float = 0.0  # queries are multiplied by 1 + growth * ln(1 + floor(position / original_max_len))

    def first_position(self, longest: int) -> int:
        """The position of a text's first token, for a text that may become `longest` tokens long."""
        assert self.original_max_len is not None, "longrope alone asks"
        return self.original_max_len if longest > self.original_max_len else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """One pass's turning: cos and signed sin, [N, 1, dim] each."""

    cos: Tensor
    sin: Tensor
    growth: Tensor | None = None  # [N, 1, 1] what queries are multiplied by

    def __call__(self, x: Tensor) -> Tensor:
        """Turn the first `dim` channels of every head: [N, H, d] -> [N, H, d]."""
        dim = self.cos.shape[-1]
        if dim == x.shape[-1]:
            return x * self.cos + x.roll(dim // 2, -1) * self.sin
        turned = x[..., :dim]
        return torch.cat((turned * self.cos + turned.roll(dim // 2, -1) * self.sin, x[..., dim:]), -1)


class Rope:
    """Tables of cosines and sines, grown as longer texts appear.

    Computed in float64, in blocks of a fixed size: a position's bits never depend on what was asked for before.
    """

    def __init__(self, config: RopeConfig) -> None:
        half = frequencies(config)  # [dim / 2]
        self.dim, self._freq = config.dim, torch.cat((half, half))  # [dim]
        self._sign = torch.cat((-torch.ones_like(half), torch.ones_like(half)))
        self._scale = attention_scale(config)
        self._config = config
        self._short: Tensor | None = None
        if config.kind == "longrope":
            half = frequencies(config, short=True)
            self._short = torch.cat((half, half))
        self._tables: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}
        self._complete: set[tuple[torch.dtype, torch.device]] = set()

    def at(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        """Cosines and sines for these positions [N]."""
        key = (dtype, positions.device)
        if key in self._complete:
            cos, sin = self._tables[key]
        else:
            cos, sin = self.table(int(positions.max()) + 1, *key)
        return Rotation(cos=cos[positions], sin=sin[positions], growth=self._growth(positions, dtype))

    def _growth(self, positions: Tensor, dtype: torch.dtype) -> Tensor | None:
        if not self._config.query_growth:
            return None
        assert self._config.original_max_len is not None
        whole = (positions // self._config.original_max_len).double()
        return (1 + self._config.query_growth * torch.log1p(whole)).to(dtype)[:, None, None]

    def further(self, heads: Tensor, by: int) -> Tensor:
        """Heads [N, H, d] that are turned already, as they are `by` positions later."""
        cos, sin = self.table(by + 1, torch.float64, heads.device)
        again = Rotation(cos=cos[by : by + 1] / self._scale, sin=sin[by : by + 1] / self._scale)
        return again(heads.double()).to(heads.dtype)

    def complete(self, length: int, dtype: torch.dtype, device: torch.device) -> None:
        """Tables for all positions that there will be: from now on `at` need not look at them on the host."""
        self.table(length, dtype, device)
        self._complete.add((dtype, device))

    def table(self, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines of at least the first `length` positions: [T, 1, dim] each."""
        known = self._tables.get((dtype, device))
        if known is None or length > known[0].shape[0]:
            cos, sin = _tables([self], length, dtype, device)
            known = self._tables[dtype, device] = cos[0], sin[0]
        return known

    def fill(self, cos: Tensor, sin: Tensor) -> None:
        """Make tables [T, 1, dim] of cosines and signed sines, where they lie."""
        for first in range(0, len(cos), _BLOCK):
            angle = self._angles(torch.arange(first, first + _BLOCK, dtype=torch.float64))
            cos[first : first + _BLOCK] = angle.cos() * self._scale
            sin[first : first + _BLOCK] = angle.sin() * self._sign * self._scale

    def _angles(self, place: Tensor) -> Tensor:
        """Of these places in the table [n]: [n, 1, dim]."""
        column = place[:, None, None]
        if self._short is None:
            return column * self._freq
        original = self._config.original_max_len
        assert original is not None
        return torch.where(column < original, column * self._short, (column - original) * self._freq)


class RopeTables:
    """The tables of several ways to turn heads, of one width, one behind another: what kernels look up."""

    def __init__(self, kinds: Sequence[RopeConfig]) -> None:
        self._ropes = [Rope(kind) for kind in kinds]
        self._tables: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    def table(self, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of at least the first `length` positions: [kinds, T, 1, dim] each."""
        known = self._tables.get((dtype, device))
        if known is None or length > known[0].shape[1]:
            known = self._tables[dtype, device] = _tables(self._ropes, length, dtype, device)
        return known


@torch.inference_mode(False)  # a table made while serving must still serve training
def _tables(ropes: Sequence[Rope], length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and signed sin for at least so many positions: [kinds, T, 1, dim] each."""
    count = 4 * _BLOCK
    while count < length:
        count *= 2
    made = torch.empty(2, len(ropes), count, 1, ropes[0].dim, dtype=dtype)
    for rope, cos, sin in zip(ropes, *made, strict=True):
        rope.fill(cos, sin)
    cos, sin = made.to(device)
    return cos, sin


def frequencies(config: RopeConfig, *, short: bool = False) -> Tensor:
    """Radians per position of each channel pair: [dim / 2], float64. `short`: longrope's for short texts."""
    exponent = torch.arange(0, config.dim, 2, dtype=torch.float64) / config.dim
    plain = config.theta**-exponent
    if config.kind == "linear":
        return plain / config.factor
    if config.kind == "llama3":
        return _llama3(plain, config)
    if config.kind == "yarn":
        return _yarn(plain, config)
    if config.kind == "longrope":
        return plain / torch.tensor(config.short_factors if short else config.long_factors, dtype=torch.float64)
    return plain


def attention_scale(config: RopeConfig) -> float:
    """What cos and sin are multiplied by: 1 but for yarn and longrope."""
    if config.kind not in ("yarn", "longrope"):
        return 1.0
    if config.attention_factor is not None:
        return config.attention_factor
    if config.kind == "longrope":
        assert config.original_max_len is not None
        return (1 + math.log(config.factor) / math.log(config.original_max_len)) ** 0.5 if config.factor > 1 else 1.0
    if config.mscale and config.mscale_all_dim:
        return _magnitude(config.factor, config.mscale) / _magnitude(config.factor, config.mscale_all_dim)
    return _magnitude(config.factor, 1.0)


def _magnitude(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _llama3(plain: Tensor, config: RopeConfig) -> Tensor:
    """Keep fast pairs, slow down slow pairs by the factor, blend in between."""
    assert config.original_max_len is not None
    turns = config.original_max_len * plain / (2 * math.pi)  # full turns within the original context
    blend = (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor)
    blend = blend.clamp(0, 1)
    return plain * (blend + (1 - blend) / config.factor)


def _yarn(plain: Tensor, config: RopeConfig) -> Tensor:
    """Keep pairs that turn often within the original context, interpolate those that hardly turn, ramp in between."""
    original = config.original_max_len
    assert original is not None

    def pair_with(turns: float) -> float:  # the pair index that makes so many turns
        return config.dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

    low, high = pair_with(config.beta_fast), pair_with(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.dim - 1)
    width = high - low if high != low else 0.001
    ramp = ((torch.arange(len(plain), dtype=torch.float64) - low) / width).clamp(0, 1)
    return plain * (ramp / config.factor + 1 - ramp)
