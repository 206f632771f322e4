"""Rows of a pass for the C interface: where each sequence's stand, and Python's numbers and tensors as pointers.

Data in: spans, whole numbers, tensors; data out: C arrays and addresses, valid as long as what they were made of.
"""

import ctypes
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate, chain

from torch import Tensor

from outdraft.core.cache import KVMemory
from outdraft.kernels.declared import CSpan
from outdraft.kernels.library import pointer


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Rows [start, stop) of a pass: one sequence, which sees the first `base` slots of its cache.

    The rows are written at slots `first`... A row's path lists the slots above the base that it sees, counted from
    `base`, in order and itself last; no paths: a chain, each row sees all before it (and first = base).
    """

    start: int
    stop: int
    base: int
    first: int
    memory: KVMemory  # of the sequence: bf16, or int8 with scales
    paths: Seq[Seq[int]] | None = None


def describe(spans: Seq[Span]) -> "ctypes.Array[CSpan]":
    """For the C interface; ctypes keeps what the pointers point at."""
    described = (CSpan * len(spans))()
    for to, span in zip(described, spans, strict=True):
        to.start, to.stop, to.base, to.first = span.start, span.stop, span.base, span.first
        memory = span.memory
        width = memory.keys.shape[-1]
        to.keys, to.values = memory.keys.data_ptr(), memory.values.data_ptr()
        if memory.key_scales is not None:
            to.key_scales, to.value_scales = pointer(memory.key_scales), pointer(memory.value_scales)
        to.pages = memory.table.data_ptr()
        layer, page, head = memory.keys.stride()[:3]
        to.layer_rows, to.page_rows, to.head_rows = layer // width, page // width, head // width
        if span.paths is not None:
            to.ends, to.path = _flatten(span.paths)
    return described


def table_size(tables: Tensor) -> int:
    """Numbers from one rotary table to the next."""
    return tables.stride(0) if tables.dim() == 4 else 0


def places(kept: Mapping[int, Tensor], layers: Seq[int]) -> "ctypes.Array[ctypes.c_void_p]":
    """A pointer for each layer; null where nothing is kept."""
    return (ctypes.c_void_p * len(layers))(*[kept[i].data_ptr() if i in kept else None for i in layers])


def ints(values: Seq[int]) -> "ctypes.Array[ctypes.c_int32]":
    """Whole numbers as a C array of int32."""
    return (ctypes.c_int32 * len(values))(*values)


def _flatten(paths: Seq[Seq[int]]) -> tuple[ctypes.Array[ctypes.c_int32], ctypes.Array[ctypes.c_int32]]:
    """(end of each path, all paths one after the other)."""
    return ints([*accumulate(map(len, paths))]), ints([*chain.from_iterable(paths)])
