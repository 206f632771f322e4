"""A model's files to a decoder on the native kernels.

    kept before    the packed file is mapped and computed with where it lies: nothing is read that a pass does not read,
                   and processes that run one model share its weights
    not kept yet   it is packed piece by piece into a file that is mapped then, or into memory where none may be kept
Every byte of a mapped file is checked at the start, which takes as long as one pass.
"""

import ctypes
import logging
import mmap
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

from outdraft.core.c_library import give_back_freed
from outdraft.kernels.checksum import checksum
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake.packed_cache import kept_file
from outdraft.models.remake.packed_file import PackedFile
from outdraft.models.remake.pieces import Pieces

_log = logging.getLogger(__name__)


def load_native(pieces: Pieces) -> NativeDecoder:
    """The decoder, its weights in memory once. Raises `ModelLoadError` for files that are not right."""
    give_back_freed()  # the lists that a tokenizer was made of, before as much is mapped
    for _ in range(2):  # a damaged file is made again, once
        kept = kept_file(pieces)
        if kept is None:
            break
        try:
            mapped = _mapped(kept, pieces)
            if mapped is not None:
                return mapped
            _log.warning("%s is damaged: it is removed, and made again", kept.path)
            kept.path.unlink(missing_ok=True)
        except OSError as error:  # another process has removed it, or it lies where nothing can be removed
            _log.info("%s is not used (%s): the weights are packed in memory", kept.path, error)
            break
    return pieces.pack()


def _mapped(file: PackedFile, pieces: Pieces) -> NativeDecoder | None:
    """Over the packed file; None where a byte of it is not what was written."""
    with file.path.open("rb") as opened:
        pages = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)  # never written; a writable view has an address
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    parts = [*file.units] if pieces.is_tied else [*file.units, file.embedding]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        found = pool.map(lambda part: checksum(start + part.offset, part.size), parts)
        if [part.checksum for part in parts] != list(found):
            return None
    stack = pieces.empty_stack()
    stack.lender = pages
    for index, unit in enumerate(file.units):
        stack.lend_unit(index, start + unit.offset, unit.size)
    table = None  # the head has its rows
    if not pieces.is_tied:
        if sys.platform == "linux":  # memory holds the rows that are looked up, and what the system maps around them
            pages.madvise(mmap.MADV_DONTNEED, file.embedding.offset, file.embedding.size)
        rows = torch.frombuffer(pages, dtype=torch.uint8, count=file.embedding.size, offset=file.embedding.offset)
        table = pieces.table_over(rows)
    return pieces.packed(stack, table, pieces.final_norm())
