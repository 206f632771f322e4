"""One preallocated block of keys and values per sequence: `[layers, Hkv, capacity, d]`, doubled when it is full.

    slot    0 ............ length ......... length + reserved ......... capacity
            committed rows  tentative rows   free

`poison` (tests) writes NaN over every slot that holds nothing, so that any use of a dropped row shows.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.errors import CapabilityError

_FIRST = 128  # slots of a new sequence


@dataclass(slots=True, kw_only=True)
class _Entry:
    """One sequence's memory."""

    keys: Tensor  # [L, Hkv, capacity, d]
    values: Tensor  # [L, Hkv, capacity, d]
    views: list[tuple[Tensor, Tensor]]  # per layer, [Hkv, capacity, d] each
    length: int = 0
    reserved: int = 0


class StaticCache:
    """`KVCache` over contiguous blocks."""

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
        poison: bool = False,
    ) -> None:
        self.shape = (num_layers, num_kv_heads, head_dim)
        self.dtype, self.device = dtype, torch.device(device)
        self.max_len = max_len
        self.poison = poison
        self._entries: dict[int, _Entry] = {}

    def add(self, seq: int) -> None:
        """A new, empty sequence."""
        if seq in self._entries:
            raise CapabilityError(f"cache: sequence {seq} exists already: free it first")
        self._entries[seq] = self._allocate(min(_FIRST, self.max_len))

    def length(self, seq: int) -> int:
        """Committed rows."""
        return self._entries[seq].length

    def reserve(self, seq: int, n: int) -> None:
        """Room for n tentative rows; rows that stand there already stay."""
        entry = self._entries[seq]
        wanted = entry.length + n
        if wanted > self.max_len:
            raise CapabilityError(
                f"cache: sequence {seq} has {entry.length} rows and asks for {n} more, but max_len is {self.max_len}"
            )
        capacity = entry.keys.shape[2]
        if wanted > capacity:
            while capacity < wanted:
                capacity *= 2
            grown = self._allocate(min(capacity, self.max_len))
            self._copy(entry, grown, entry.length + entry.reserved)
            grown.length, grown.reserved = entry.length, entry.reserved
            entry = self._entries[seq] = grown
        entry.reserved = max(entry.reserved, n)

    def commit(self, seq: int, keep: Seq[int]) -> None:
        """Keep these tentative rows (counted from `length`), in this order; drop the others."""
        entry = self._entries[seq]
        if any(not 0 <= row < entry.reserved for row in keep):
            raise CapabilityError(f"cache: commit of rows {list(keep)}, but {entry.reserved} are reserved")
        same = 0
        while same < len(keep) and keep[same] == same:
            same += 1
        if same < len(keep):
            source = torch.tensor(keep[same:], device=self.device) + entry.length
            target = slice(entry.length + same, entry.length + len(keep))
            entry.keys[:, :, target] = entry.keys[:, :, source]
            entry.values[:, :, target] = entry.values[:, :, source]
        entry.length += len(keep)
        self._drop(entry)

    def truncate(self, seq: int, length: int) -> None:
        """Forget everything from row `length` on."""
        entry = self._entries[seq]
        if not 0 <= length <= entry.length:
            raise CapabilityError(f"cache: truncate to {length}, but sequence {seq} has {entry.length} rows")
        entry.length = length
        self._drop(entry)

    def fork(self, seq: int, new: int) -> None:
        """`new` starts with a copy of `seq`'s committed rows."""
        entry = self._entries[seq]
        self.add(new)
        self.reserve(new, entry.length)
        copy = self._entries[new]
        self._copy(entry, copy, entry.length)
        copy.length, copy.reserved = entry.length, 0

    def free(self, seq: int) -> None:
        """Forget the sequence."""
        del self._entries[seq]

    def layer_view(self, seq: int, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of one layer, each [Hkv, capacity, d]; valid until the next `reserve`."""
        return self._entries[seq].views[layer]

    def block(self, seq: int) -> tuple[Tensor, Tensor]:
        """K and V of all layers, each [L, Hkv, capacity, d]; valid until the next `reserve`."""
        entry = self._entries[seq]
        return entry.keys, entry.values

    def check(self) -> None:
        """Raise if an invariant broke."""
        for seq, entry in self._entries.items():
            capacity = entry.keys.shape[2]
            if not 0 <= entry.length <= entry.length + entry.reserved <= capacity <= self.max_len:
                raise AssertionError(
                    f"cache: sequence {seq} has length {entry.length}, {entry.reserved} reserved, capacity {capacity}"
                )
            if not self.poison:
                continue
            for block in (entry.keys, entry.values):
                if bool(block[:, :, : entry.length].isnan().any()):
                    raise AssertionError(f"cache: a committed row of sequence {seq} was never written")
                if not bool(block[:, :, entry.length + entry.reserved :].isnan().all()):
                    raise AssertionError(f"cache: sequence {seq} was written beyond its reserved rows")

    def _allocate(self, capacity: int) -> _Entry:
        layers, heads, width = self.shape
        shape = (layers, heads, capacity, width)
        keys = torch.empty(shape, dtype=self.dtype, device=self.device)
        values = torch.empty_like(keys)
        if self.poison:
            keys.fill_(float("nan"))
            values.fill_(float("nan"))
        return _Entry(keys=keys, values=values, views=list(zip(keys.unbind(), values.unbind(), strict=True)))

    def _copy(self, source: _Entry, target: _Entry, rows: int) -> None:
        target.keys[:, :, :rows] = source.keys[:, :, :rows]
        target.values[:, :, :rows] = source.values[:, :, :rows]

    def _drop(self, entry: _Entry) -> None:
        """Nothing is tentative any more."""
        entry.reserved = 0
        if self.poison:
            entry.keys[:, :, entry.length :] = float("nan")
            entry.values[:, :, entry.length :] = float("nan")
