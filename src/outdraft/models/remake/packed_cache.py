"""Where packed weights are kept: in the user's cache, each file named for what it was made from.

Another source, rounding, layout or build of the kernels is another name; a file that is cut short or damaged is made
again. The least recently used files go when all together would take more than the limit (`weights/user_cache.py`).
"""

import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch

from outdraft.core.c_library import give_back_freed
from outdraft.kernels.library import library_file, wanted_kind
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.native import can_pack
from outdraft.models.remake.packed_file import FORMAT, PackedFile, read_index, write_packed
from outdraft.models.remake.pieces import Pieces
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.weights.digest import digest_weights
from outdraft.weights.gguf_files import part_paths
from outdraft.weights.safetensors import INDEX
from outdraft.weights.user_cache import cache_limit, is_kept, user_cache

SMALLEST = 64 << 20  # bytes of files; what is smaller is packed sooner than looked up
_ABANDONED = 24 * 3600  # seconds after which an unfinished file is cleared away
_log = logging.getLogger(__name__)


def packed_file(pieces: Pieces, *, cache: Path | None = None) -> PackedFile:
    """The packed file of a model, made now if it is not in the cache.

    Raises:
        CapabilityError: the kernels do not know this model.
        ModelLoadError: its files are not right, or the cache cannot be written.
    """
    stored = pieces.stored
    path = stored.source.origin
    if not can_pack(pieces.config, stored.dtype, torch.device("cpu")):
        kind, dtype = stored.config.architecture, str(stored.dtype).removeprefix("torch.")
        raise CapabilityError(
            f"weights_memory streams what the native kernels compute, decoders of Llama's shape in bfloat16; "
            f"{path.name} is {kind} in {dtype} (or the kernels are off): leave it out, or give dtype='bfloat16'"
        )
    place = place_of(pieces, cache=cache or user_cache("packed"))
    try:
        return find_packed(place) or _settled(make_packed(place, pieces))
    except OSError as error:
        raise ModelLoadError(
            f"the packed weights of {path.name} cannot be written to {place.parent} ({error}): they take about "
            f"{packed_bytes(pieces) / 1e9:.1f} GB; free space there, or name another directory in OUTDRAFT_CACHE"
        ) from error


def kept_file(pieces: Pieces) -> PackedFile | None:
    """The same where the user did not ask for it; None: it is not there, and must not, need not or cannot be kept."""
    if not is_kept():
        return None
    place = place_of(pieces, cache=user_cache("packed"))
    try:
        found = find_packed(place)
        if found is not None or not _make_room(place.parent, packed_bytes(pieces)):
            return found
        _log.info("packing the weights of %s once, into %s", pieces.stored.source.origin.name, place)
        return make_packed(place, pieces)
    except OSError as error:
        _log.info("packed weights are not kept (%s): every load packs them again", error)
        return None


def packed_bytes(pieces: Pieces) -> int:
    """About what the packed file takes, from the shapes."""
    config, dtype = pieces.config, pieces.stored.dtype
    whole = Decoder(config, dtype, "meta")
    table = config.vocab_size * config.hidden_size * dtype.itemsize
    return whole.pass_bytes + table  # where the head is tied, the file has the table twice


def place_of(pieces: Pieces, *, cache: Path) -> Path:
    """Where the packed file of a model stands in a cache: its name says what it was made from."""
    stored, rounding = pieces.stored, pieces.rounding
    path = stored.source.origin
    times = [file.stat().st_mtime_ns for file in _files(path)]
    rounded = None if rounding is None else asdict(rounding)
    kernels = hashlib.sha256(library_file().read_bytes()).hexdigest()
    told = [FORMAT, kernels, str(path.resolve()), digest_weights(path), times, str(stored.dtype), rounded]
    told += [wanted_kind(), repr(stored.config)]  # processors want other layouts
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()
    return cache / f"{path.stem}-{digest[:16]}.packed"


def find_packed(place: Path) -> PackedFile | None:
    """A packed file that is there and whole, as far as its index shows; a damaged one is removed."""
    try:
        found = read_index(place)
    except FileNotFoundError:
        return None
    except ModelLoadError as error:
        _log.warning("%s", error)
        place.unlink(missing_ok=True)
        return None
    with suppress(OSError):  # another user's file, or a read-only disk
        os.utime(place)  # the least recently used goes first
    return found


def make_packed(place: Path, pieces: Pieces) -> PackedFile:
    """Written beside its place and moved there when whole. Raises `OSError`, and what reading the model raises."""
    beside = place.with_suffix(f".{os.getpid()}-{secrets.token_hex(4)}.part")  # containers have the same process ids
    place.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(place.parent).free < packed_bytes(pieces):
        raise OSError(errno.ENOSPC, "no space left on the device")
    try:
        with beside.open("xb") as file:
            write_packed(file, pieces)
        beside.chmod(0o444)  # it is mapped: a program that would write over it must remove it, which harms no reader
        beside.rename(place)
    finally:
        beside.unlink(missing_ok=True)
    give_back_freed()  # the pieces, and what they were made of
    return read_index(place)


def remake_packed(packed: PackedFile, pieces: Pieces) -> None:
    """Write a file again that is damaged, or that another program wrote to, while it is read.

    Raises `ModelLoadError` where it cannot be written, or where the model has become another one.
    """
    _log.warning("%s is damaged: it is made again", packed.path)
    try:
        made = _settled(make_packed(packed.path, pieces))
    except OSError as error:
        raise ModelLoadError(f"{packed.path} is damaged, and cannot be made again: {error}") from error
    if made != packed:
        packed.path.unlink(missing_ok=True)
        raise ModelLoadError(f"{packed.path} is damaged, and its model has changed since: load the model again")


def _settled(made: PackedFile) -> PackedFile:
    """On the disk, where a direct read finds it, and out of memory."""
    with made.path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return made


def _make_room(cache: Path, size: int) -> bool:
    """Remove the least recently used until one of `size` fits within the limit; whether it may be written at all."""
    limit = cache_limit()
    cache.mkdir(parents=True, exist_ok=True)
    for part in cache.glob("*.part"):
        if part.stat().st_mtime < time.time() - _ABANDONED:
            part.unlink(missing_ok=True)
    if size > limit or size > shutil.disk_usage(cache).free // 2:
        return False
    total = size
    for file in sorted(cache.glob("*.packed"), key=lambda file: file.stat().st_mtime_ns, reverse=True):
        total += file.stat().st_size
        if total > limit:
            _log.info("%s was deleted to make room for other packed weights", file.name)
            file.unlink(missing_ok=True)
    return True


def _files(path: Path) -> list[Path]:
    found = part_paths(path) if path.is_file() else [*path.glob("*.safetensors"), path / "config.json", path / INDEX]
    return sorted(one for one in found if one.is_file())
