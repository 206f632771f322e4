"""Keys and values in memory: as floats, or as bytes with one float scale a row (`int8`).

    float   keys [..., d]                 int8   keys [..., d] in -127..127   key_scales [...]    scale = max|row| / 127

A row's bytes and scale depend on that row alone, so what the cache holds does not depend on the pass that wrote it.
Where a row stands is an index into the leading dimensions: contiguous and paged caches differ in nothing else.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Index = Any  # what stands between the brackets of a tensor


def to_bytes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """[..., d] -> int8 [..., d] and its scales, float32 [...]; a row of zeros has scale 0."""
    rows = rows.float()
    scales = rows.abs().amax(-1) / 127
    inverse = torch.where(scales == 0, 0.0, 1 / scales)
    return (rows * inverse[..., None]).round_().clamp_(-127, 127).to(torch.int8), scales


def to_floats(integers: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """What the bytes stand for: [..., d] in `dtype`."""
    return (integers.float() * scales[..., None]).to(dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planes:
    """Keys and values of some slots. `dtype`: what rows are given and taken in."""

    dtype: torch.dtype
    keys: Tensor  # [..., d] of `dtype`, or int8
    values: Tensor  # the same
    key_scales: Tensor | None = None  # [...] float32, with int8
    value_scales: Tensor | None = None  # the same

    @classmethod
    @torch.inference_mode(False)  # a pool that grew while serving must still change outside
    def allocate(cls, leading: tuple[int, ...], width: int, like: "RowFormat", poison: bool) -> "Planes":
        """Slots of shape `leading`, rows of `width` channels."""
        rows = torch.empty((*leading, width), dtype=torch.int8 if like.int8 else like.dtype, device=like.device)
        values = torch.empty_like(rows)
        scales = [torch.empty(leading, dtype=torch.float32, device=like.device) for _ in range(2 * like.int8)]
        made = cls(
            dtype=like.dtype, keys=rows, values=values,
            key_scales=scales[0] if scales else None, value_scales=scales[1] if scales else None,
        )  # fmt: skip
        if poison:
            made.poison(...)
        return made

    def put(self, index: Index, k: Tensor, v: Tensor) -> None:
        """Store rows at an index: k and v as the index gives them, [..., d]."""
        if self.key_scales is None or self.value_scales is None:
            self.keys[index] = k
            self.values[index] = v
        else:
            self.keys[index], self.key_scales[index] = to_bytes(k)
            self.values[index], self.value_scales[index] = to_bytes(v)

    def get(self, index: Index) -> tuple[Tensor, Tensor]:
        """Rows at an index, [..., d] in `dtype`: a view where floats are stored and the index allows one."""
        if self.key_scales is None or self.value_scales is None:
            return self.keys[index], self.values[index]
        return (
            to_floats(self.keys[index], self.key_scales[index], self.dtype),
            to_floats(self.values[index], self.value_scales[index], self.dtype),
        )

    def copy(self, index: Index, source: "Planes", source_index: Index) -> None:
        """Rows of `source` as they are stored."""
        for ours, theirs in zip(self.tensors(), source.tensors(), strict=True):
            ours[index] = theirs[source_index]

    def tensors(self) -> list[Tensor]:
        return [x for x in (self.keys, self.values, self.key_scales, self.value_scales) if x is not None]

    def poison(self, index: Index) -> None:
        """Make the rows at an index NaN."""
        for plane in self._marks():
            plane[index] = float("nan")

    def has_holes(self, index: Index) -> bool:
        """Whether a row at the index was never written (or is poisoned)."""
        return any(bool(plane[index].isnan().any()) for plane in self._marks())

    def is_void(self, index: Index) -> bool:
        """Whether all rows at the index are poisoned."""
        return all(bool(plane[index].isnan().all()) for plane in self._marks())

    def _marks(self) -> list[Tensor]:
        """The planes that can hold a NaN."""
        return [plane for plane in self.tensors() if plane.is_floating_point()]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """How the rows of keys and values are stored: as they are, or as bytes with a scale."""

    dtype: torch.dtype  # of the rows that are given and taken
    device: torch.device
    int8: bool = False

    def num_bytes(self, width: int) -> int:
        """Of a row of keys, or of values, with its scale if it has one."""
        return width + 4 if self.int8 else width * self.dtype.itemsize
