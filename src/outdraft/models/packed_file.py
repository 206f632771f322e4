"""A model's weights as the native kernels want them, in one file that is made once and read ever after.

    [ layer 0 | layer 1 | ... | head and final norm | embedding rows | index ]      parts begin at multiples of 4096

Packing a layer takes longer than reading it, so it is not done at every pass. Data in: a model's own files; data out:
the packed file in the user's cache, named for what it was made from. Making it holds one layer at a time (twice), or
the embedding table and the head.
"""

import errno
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import torch

from outdraft.core.errors import CapabilityError, ModelLoadError
from outdraft.kernels.decoder.stack import Stack
from outdraft.models.base import Decoder
from outdraft.models.block import Block as Layer
from outdraft.models.load import StoredWeights, tensors_of
from outdraft.models.native import any_norm_of, can_pack, parts_of, shape_of, weight_of
from outdraft.weights.direct import align
from outdraft.weights.units import Block, Unit
from outdraft.weights.user_cache import user_cache

_FORMAT = 1  # count it up when the layouts of kernels/native/packed.h or image.cpp change
_MARK = b"outdraft packed\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """Where things stand in it."""

    path: Path
    units: tuple[Unit, ...]  # the layers, then the head with the final norm
    embedding: int  # offset of the table: rows of bfloat16


def packed_file(stored: StoredWeights, *, cache: Path | None = None) -> PackedFile:
    """The packed file of a model, made now if it is not in the cache.

    Raises:
        CapabilityError: the kernels do not know this model.
        ModelLoadError: its files are not right, or the cache cannot be written.
    """
    path = stored.source.origin
    if not can_pack(stored.config, stored.dtype, torch.device("cpu")):
        kind, dtype = stored.config.architecture, str(stored.dtype).removeprefix("torch.")
        raise CapabilityError(
            f"weights_memory streams what the native kernels compute, decoders of Llama's shape in bfloat16; "
            f"{path.name} is {kind} in {dtype} (or the kernels are off): leave it out, or give dtype='bfloat16'"
        )
    place = place_of(stored, cache=cache or user_cache("packed"))
    if not place.exists():
        _make(place, stored)
    return _read_index(place)


def place_of(stored: StoredWeights, *, cache: Path) -> Path:
    """Where the packed file of a model stands in a cache: its name says what it was made from."""
    path = stored.source.origin
    return cache / f"{path.stem}-{_fingerprint(path, stored)}.packed"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted([*path.glob("*.safetensors"), path / "config.json"])


def _fingerprint(path: Path, stored: StoredWeights) -> str:
    """Of the files that a packed one is made from: they are too large to be read at every start."""
    told = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in _files(path)]
    text = json.dumps([_FORMAT, str(path), told, str(stored.dtype)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _make(place: Path, stored: StoredWeights) -> None:
    """Written beside its place and moved there when whole."""
    beside = place.with_suffix(f".{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        need = sum(file.stat().st_size for file in _files(stored.source.origin))
        if shutil.disk_usage(place.parent).free < need:
            raise OSError(errno.ENOSPC, "no space left on the device")
        with beside.open("wb") as file:
            _write(file, stored)
            file.flush()
            os.fsync(file.fileno())  # a direct read must find it, and its pages can then be let go
            _let_go(file)
        beside.rename(place)
    except OSError as error:
        raise ModelLoadError(
            f"the packed weights of {stored.source.origin.name} cannot be written to {place.parent} ({error}): they "
            "take about as much as the model; free space there, or name another directory in XDG_CACHE_HOME"
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def _let_go(file: BinaryIO) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _write(file: BinaryIO, stored: StoredWeights) -> None:
    """Unit by unit, the embedding table, the index, and where the index begins."""
    config = stored.config
    packer = Stack(shape_of(config), 1, threads=1)
    units = []
    for index in range(config.num_layers):
        layer = Layer(config, index, stored.dtype, torch.device("cpu"))
        tensors = tensors_of(layer)
        stored.fill({f"layers.{index}.{name}": tensor for name, tensor in tensors.items()})
        packer.set_layer(0, parts_of(layer))
        units.append(_append(file, packer.unit_bytes(0), lambda at: packer.write_unit(0, at)))
    ends = Decoder(config.of_layers(()), stored.dtype)
    stored.fill(tensors_of(ends))
    packer.set_head(weight_of(ends.lm_head), any_norm_of(ends.final_norm))
    units.append(_append(file, packer.unit_bytes(1), lambda at: packer.write_unit(1, at)))
    embedding = file.tell()
    file.write(ends.embedding.detach().contiguous().view(torch.uint8).numpy().data)
    start = file.tell()
    index_text = json.dumps({"units": [asdict(unit) for unit in units], "embedding": embedding})
    file.write(index_text.encode() + start.to_bytes(8, "little") + _MARK)


def _append(file: BinaryIO, size: int, write: Callable[[int], None]) -> Unit:
    block = Block(size)
    write(block.address)
    offset = file.tell()
    file.write(block.memory[: align(size)])
    return Unit(offset=offset, size=size, crc=zlib.crc32(block.memory[:size]))


def _read_index(place: Path) -> PackedFile:
    tail = 8 + len(_MARK)
    with place.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - tail))
        end = file.read(tail)
        try:
            if end[8:] != _MARK:
                raise ValueError("its end mark is missing")
            file.seek(int.from_bytes(end[:8], "little"))
            told = json.loads(file.read()[:-tail])
            units = tuple(Unit(**unit) for unit in told["units"])
            return PackedFile(path=place, units=units, embedding=told["embedding"])
        except (ValueError, TypeError, LookupError, OverflowError, OSError) as error:
            raise ModelLoadError(
                f"{place} is no packed file, cut short or damaged ({error}): delete it, it is made again"
            ) from error
