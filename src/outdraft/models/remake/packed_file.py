"""A model's weights as the native kernels want them, in one file.

    [ layer 0 | layer 1 | ... | embedding rows | head and final norm | index ]      parts begin at multiples of 4096

Packing takes longer than reading, so it is done once: the file is read piece by piece (`streamed.py`), or mapped
and computed with where it lies (`native_files.py`). Data in: the pieces of a model; data out: the packed file.
Making it holds one piece at a time (twice). `packed_cache.py` says where it is kept, and for how long.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import torch

from outdraft.kernels.checksum import checksum
from outdraft.kernels.decoder.stack import Stack
from outdraft.models.networks.native import shape_of
from outdraft.models.remake.pieces import Pieces
from outdraft.nn.quant.block_linear import BlockEmbedding
from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import open_file
from outdraft.weights.direct import align
from outdraft.weights.units import MemoryBlock, Unit

FORMAT = 5  # counted up when the layouts of kernels/native/packed.h or image.cpp change, or a reader of files is mended
_MARK = b"outdraft packed\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """A packed file: the position and size of each layer, the embedding included."""

    path: Path
    units: tuple[Unit, ...]  # the layers, then the head with the final norm
    embedding: Unit  # the table: rows of bfloat16, or of blocks


def write_packed(file: BinaryIO, pieces: Pieces) -> None:
    """Unit by unit, the embedding table, the index, and where the index begins."""
    config = pieces.config
    packer = Stack(shape_of(config), 1, threads=1)
    units = []
    for index in range(config.num_layers):
        packer.set_layer(0, pieces.layer(index))
        units.append(_append(file, packer.unit_bytes(0), lambda at: packer.write_unit(0, at)))
    ends = pieces.ends()
    rows = ends.embedding
    if isinstance(rows, BlockEmbedding):
        ((_, rows),) = rows.blocks.held()
    table = _append_rows(file, rows.view(torch.uint8).flatten())
    packer.set_head(ends.head, ends.norm)
    del ends, rows  # a head may be as large as all layers, and is packed
    units.append(_append(file, packer.unit_bytes(1), lambda at: packer.write_unit(1, at)))
    told = {"units": [asdict(unit) for unit in units], "embedding": asdict(table)}
    start = file.tell()
    file.write(json.dumps(told).encode() + start.to_bytes(8, "little") + _MARK)


def _append(file: BinaryIO, size: int, write: Callable[[int], None]) -> Unit:
    block = MemoryBlock(size)
    write(block.address)
    offset = file.tell()
    file.write(block.memory[: align(size)])
    return Unit(offset=offset, size=size, checksum=checksum(block.address, size))


def _append_rows(file: BinaryIO, table: torch.Tensor) -> Unit:
    offset = file.tell()
    file.write(table.numpy().data)
    file.seek(align(file.tell()))
    return Unit(offset=offset, size=len(table), checksum=checksum(table.data_ptr(), len(table)))


def read_index(path: Path) -> PackedFile:
    """What a packed file holds. Raises `ModelLoadError` for one that is damaged there, `OSError` as `open` does."""
    tail = 8 + len(_MARK)
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - tail))
        end = file.read(tail)
        try:
            if end[8:] != _MARK:
                raise ValueError("its end mark is missing")
            file.seek(int.from_bytes(end[:8], "little"))
            told = json.loads(file.read()[:-tail])
            units = [Unit(**unit) for unit in (*told["units"], told["embedding"])]
            if any(unit.offset < 0 or unit.size < 0 or unit.offset + unit.size > size for unit in units):
                raise ValueError("a part lies beyond its end")
            return PackedFile(path=path, units=tuple(units[:-1]), embedding=units[-1])
        except (ValueError, TypeError, LookupError, OverflowError, OSError) as error:
            raise ModelLoadError(
                f"{path} is no packed file, cut short or damaged ({error}): delete it, and it will be made again"
            ) from error
