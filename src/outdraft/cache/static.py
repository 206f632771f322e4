"""One block of keys and values per sequence: `[layers, Hkv, capacity, d]`, doubled when it is full.

    slot    0 ............ length ......... length + reserved ......... capacity
            committed rows  tentative rows   free

To kernels a block is pages that happen to stand in a row.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.cache.slots import Planes, SlotCache, Slots
from outdraft.core.cache import PAGE, KVMemory

_FIRST = 128  # slots of a new sequence


@dataclass(slots=True, kw_only=True)
class Block(Slots):
    """One sequence's memory."""

    planes: Planes  # [L, Hkv, capacity]
    memory: KVMemory = field(init=False)  # the same, cut into pages
    capacity: int = field(init=False)  # how many slots there are

    def __post_init__(self) -> None:
        self.hold(self.planes)

    def hold(self, planes: Planes) -> None:
        """The sequence's rows stand here from now on."""
        self.planes, self.capacity = planes, planes.keys.shape[2]
        count = self.capacity // PAGE
        keys, values, *scales = (
            plane.view(*plane.shape[:2], count, PAGE, *plane.shape[3:]).transpose(1, 2) for plane in planes.tensors()
        )
        self.memory = KVMemory(
            keys=keys,
            values=values,
            table=torch.arange(count, dtype=torch.int32),
            key_scales=scales[0] if scales else None,
            value_scales=scales[1] if scales else None,
        )


class StaticCache(SlotCache[Block]):
    """`KVCache` over contiguous blocks."""

    def write(self, seq: int, layer: int, slot: int, k: Tensor, v: Tensor) -> None:
        where = (layer, slice(None), slice(slot, slot + k.shape[0]))
        self._entries[seq].planes.put(where, k.transpose(0, 1), v.transpose(0, 1))

    def read(self, seq: int, layer: int, stop: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of slots [start, stop), each [Hkv, stop - start, d]: views, but for int8."""
        return self._entries[seq].planes.get((layer, slice(None), slice(start, stop)))

    def memory(self, seq: int) -> KVMemory:
        """The block, cut into pages."""
        return self._entries[seq].memory

    def check(self) -> None:
        for seq, entry in self._entries.items():
            if not 0 <= entry.length <= entry.stop <= min(entry.capacity, self.max_len):
                raise AssertionError(
                    f"cache: sequence {seq} has length {entry.length}, {entry.reserved} reserved, "
                    f"capacity {entry.capacity}"
                )
            if not self.poison:
                continue
            if entry.planes.has_holes(_slots(0, entry.length)):
                raise AssertionError(f"cache: a committed row of sequence {seq} was never written")
            if not entry.planes.is_void(_slots(entry.stop, None)):
                raise AssertionError(f"cache: sequence {seq} was written beyond its reserved rows")

    def _new(self) -> Block:
        return Block(planes=self._allocate(_FIRST))

    def _allocate(self, capacity: int) -> Planes:
        """Whole pages, no more of them than a text may use."""
        layers, heads, width = self.shape
        pages = min(capacity, self.max_len + PAGE - 1) // PAGE
        return Planes.allocate((layers, heads, pages * PAGE), width, self.format, self.poison)

    def _make_room(self, entry: Block, stop: int) -> None:
        capacity = entry.capacity
        if stop <= capacity:
            return
        while capacity <= stop:  # one more row will come: there is always a next token
            capacity *= 2
        grown = self._allocate(capacity)
        grown.copy(_slots(0, entry.stop), entry.planes, _slots(0, entry.stop))
        entry.hold(grown)

    def _move(self, entry: Block, sources: list[int], target: int) -> None:
        source = torch.tensor(sources, device=self.format.device)
        to = _slots(target, target + len(sources))
        entry.planes.copy(to, entry.planes, (slice(None), slice(None), source))

    def _drop(self, entry: Block, length: int) -> None:
        entry.length, entry.reserved = length, 0
        if self.poison:
            entry.planes.poison(_slots(length, None))

    def _copy(self, entry: Block) -> Block:
        copy = Block(planes=self._allocate(entry.capacity))
        copy.planes.copy(_slots(0, entry.length), entry.planes, _slots(0, entry.length))
        return copy


def _slots(first: int, stop: int | None) -> tuple[slice, slice, slice]:
    """Index of slots [first, stop) in every layer and head."""
    return slice(None), slice(None), slice(first, stop)
