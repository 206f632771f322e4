"""What all caches of keys and values share: how a row is stored, who has how many rows, and what may be asked.

    float   keys [..., d]                 int8   keys [..., d] in -127..127   key_scales [...]    scale = max|row| / 127

    slot    0 ............ length ......... length + reserved
            committed rows  tentative rows   nothing

A row's bytes and scale depend on that row alone, so what the cache holds does not depend on the pass that wrote it.
Where a row stands is an index into the leading dimensions of its planes. A cache says where its slots lie: it makes
room, moves rows and lets go of what nothing stands in; `write`, `read`, `memory` and `check` are its own.
`poison` (tests): NaN wherever nothing stands, so that any use of a dropped row shows.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from outdraft.cache.int8 import to_bytes, to_floats
from outdraft.options.errors import CapabilityError

Index = Any  # what stands between the brackets of a tensor


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
            dtype=like.dtype,
            keys=rows,
            values=values,
            key_scales=scales[0] if scales else None,
            value_scales=scales[1] if scales else None,
        )
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


@dataclass(slots=True, kw_only=True)
class Slots:
    """Where the rows of one sequence stand, and how many of them are committed."""

    length: int = 0
    reserved: int = 0

    @property
    def stop(self) -> int:
        """The first slot in which nothing stands."""
        return self.length + self.reserved


S = TypeVar("S", bound=Slots)


class SlotCache(ABC, Generic[S]):
    """`KVCache`, but for where the slots lie."""

    can_trim = True

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        max_len: int,
        *,
        int8: bool = False,
        poison: bool = False,
    ) -> None:
        self.shape = (num_layers, num_kv_heads, head_dim)
        self.format = RowFormat(dtype=dtype, device=torch.device(device), int8=int8)
        self.max_len = max_len
        self.poison = poison
        self._entries: dict[int, S] = {}

    def add(self, seq: int) -> None:
        self._refuse_known(seq)
        self._entries[seq] = self._new()

    def length(self, seq: int) -> int:
        return self._entries[seq].length

    def ids(self) -> list[int]:
        return list(self._entries)

    def num_tentative(self, seq: int) -> int:
        """For how many rows behind the committed ones there is room."""
        return self._entries[seq].reserved

    def reserve(self, seq: int, n: int) -> None:
        """Room for n tentative rows; rows that stand there already stay."""
        entry = self._entries[seq]
        if entry.length + n > self.max_len:
            raise CapabilityError(
                f"cache: sequence {seq} has {entry.length} rows and asks for {n} more, but max_len is {self.max_len}"
            )
        self._make_room(entry, entry.length + n)
        entry.reserved = max(entry.reserved, n)

    def commit(self, seq: int, keep: Seq[int]) -> None:
        """Keep these tentative rows (counted from `length`), in this order; drop the others."""
        entry = self._entries[seq]
        if keep and not 0 <= min(keep) <= max(keep) < entry.reserved:
            raise CapabilityError(f"cache: commit of rows {list(keep)}, but {entry.reserved} are reserved")
        same = 0
        while same < len(keep) and keep[same] == same:
            same += 1
        if same < len(keep):
            self._move(entry, [entry.length + row for row in keep[same:]], entry.length + same)
        self._drop(entry, entry.length + len(keep))

    def truncate(self, seq: int, length: int) -> None:
        entry = self._entries[seq]
        if not 0 <= length <= entry.length:
            raise CapabilityError(f"cache: truncate to {length}, but sequence {seq} has {entry.length} rows")
        self._drop(entry, length)

    def fork(self, seq: int, new: int) -> None:
        self._refuse_known(new)
        copy = self._copy(self._entries[seq])
        copy.length, copy.reserved = self._entries[seq].length, 0
        self._entries[new] = copy

    def free(self, seq: int) -> None:
        self._release(self._entries.pop(seq))

    @abstractmethod
    def _new(self) -> S:
        """An empty sequence's memory."""

    @abstractmethod
    def _make_room(self, entry: S, stop: int) -> None:
        """Let the slots below `stop` exist."""

    @abstractmethod
    def _move(self, entry: S, sources: list[int], target: int) -> None:
        """Copy the rows of tentative slots `sources` to the slots `target`, `target` + 1, ..."""

    @abstractmethod
    def _drop(self, entry: S, length: int) -> None:
        """Keep `length` rows, none of them tentative."""

    @abstractmethod
    def _copy(self, entry: S) -> S:
        """Memory that holds the same committed rows."""

    def _release(self, entry: S) -> None:
        """Give back what the sequence held."""

    def _refuse_known(self, seq: int) -> None:
        if seq in self._entries:
            raise CapabilityError(f"cache: sequence {seq} exists already: free it first")
