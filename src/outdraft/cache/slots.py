"""The bookkeeping that all caches share: who has how many rows, committed and tentative, and what may be asked.

    slot    0 ............ length ......... length + reserved
            committed rows  tentative rows   nothing

A cache says where its slots lie: it makes room, moves rows and lets go of what nothing stands in.
`poison` (tests): NaN wherever nothing stands, so that any use of a dropped row shows.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from outdraft.cache.planes import RowFormat
from outdraft.core.cache import KVMemory
from outdraft.options.errors import CapabilityError


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
        """A new, empty sequence."""
        self._refuse_known(seq)
        self._entries[seq] = self._new()

    def length(self, seq: int) -> int:
        return self._entries[seq].length

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
        if any(not 0 <= row < entry.reserved for row in keep):
            raise CapabilityError(f"cache: commit of rows {list(keep)}, but {entry.reserved} are reserved")
        same = 0
        while same < len(keep) and keep[same] == same:
            same += 1
        if same < len(keep):
            self._move(entry, [entry.length + row for row in keep[same:]], entry.length + same)
        self._drop(entry, entry.length + len(keep))

    def truncate(self, seq: int, length: int) -> None:
        """Forget everything from row `length` on."""
        entry = self._entries[seq]
        if not 0 <= length <= entry.length:
            raise CapabilityError(f"cache: truncate to {length}, but sequence {seq} has {entry.length} rows")
        self._drop(entry, length)

    def fork(self, seq: int, new: int) -> None:
        """`new` starts with `seq`'s committed rows."""
        self._refuse_known(new)
        copy = self._copy(self._entries[seq])
        copy.length, copy.reserved = self._entries[seq].length, 0
        self._entries[new] = copy

    def free(self, seq: int) -> None:
        self._release(self._entries.pop(seq))

    @abstractmethod
    def write(self, seq: int, layer: int, slot: int, k: Tensor, v: Tensor) -> None:
        """Rows k and v [n, Hkv, d] into reserved slots `slot`.. of one layer."""

    @abstractmethod
    def read(self, seq: int, layer: int, stop: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of slots [start, stop), each [Hkv, stop - start, d]: a view or a copy."""

    @abstractmethod
    def memory(self, seq: int) -> KVMemory:
        """Where all layers' rows stand."""

    @abstractmethod
    def check(self) -> None:
        """Raise `AssertionError` if an invariant broke."""

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
