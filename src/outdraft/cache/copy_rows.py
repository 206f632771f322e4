"""Rows of one cache put into another as they are stored: floats or bytes, with no rounding on the way.

    source   slots 40 41 42        to   slots 8 9 10        both hold floats of one type, or both hold bytes

Reading rows and writing them would turn bytes into floats of the model's type and back, and in bfloat16 that changes
some of them. Data in: where the rows of two sequences stand; data out: nothing, the second holds the rows.
"""

import torch
from torch import Tensor

from outdraft.core.cache import PAGE, KVMemory


def copy_rows(source: KVMemory, rows: range, to: KVMemory, slot: int) -> None:
    """Rows of all layers into slots `slot`, `slot` + 1, ... of `to`."""
    there = _index(source, rows)
    here = _index(to, range(slot, slot + len(rows)))
    for theirs, ours in zip(_planes(source), _planes(to), strict=True):
        ours[here] = theirs[there]


def _index(memory: KVMemory, slots: range) -> tuple[slice, Tensor, slice, Tensor]:
    """Index of these slots in every layer and head."""
    where = torch.arange(slots.start, slots.stop)
    page, place = memory.table[where // PAGE].long(), where % PAGE
    device = memory.keys.device
    return slice(None), page.to(device), slice(None), place.to(device)


def _planes(memory: KVMemory) -> list[Tensor]:
    """All that a row consists of."""
    planes = (memory.keys, memory.values, memory.key_scales, memory.value_scales)
    return [plane for plane in planes if plane is not None]
