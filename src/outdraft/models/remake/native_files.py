"""A model's files to a decoder on the native kernels.

    kept before    the packed file is mapped and computed with where it lies: nothing is read that a pass does not read,
                   and processes that run one model share its weights
    not kept yet   it is packed piece by piece into a file that is mapped then, or into memory where none may be kept
Every byte of a mapped file is checked at the start, which takes as long as one pass.
"""

import ctypes
import logging
import mmap
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from outdraft.kernels.checksum import checksum
from outdraft.kernels.decoder.stack import Stack
from outdraft.kernels.library import wanted_kind
from outdraft.kernels.threads import num_threads
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.native import NativeDecoder, any_norm_of, parts_of, shape_of, weight_of
from outdraft.models.remake.packed_cache import kept_file
from outdraft.models.remake.packed_file import PackedFile
from outdraft.models.remake.pieces import Pieces

_log = logging.getLogger(__name__)


def load_native(pieces: Pieces) -> NativeDecoder:
    """The decoder, its weights in memory once. Raises `ModelLoadError` for files that are not right."""
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
    return _packed(pieces)


def _packed(pieces: Pieces) -> NativeDecoder:
    """Packed in memory, a piece at a time."""
    config = pieces.config
    stack = _stack(config)
    for index in range(config.num_layers):
        stack.set_layer(index, parts_of(pieces.layer(index)))
    ends = pieces.ends()
    stack.set_head(weight_of(ends.lm_head), any_norm_of(ends.final_norm))
    return _decoder(pieces, stack, ends.embedding.detach(), ends.final_norm.float())


def _mapped(file: PackedFile, pieces: Pieces) -> NativeDecoder | None:
    """Over the packed file; None where a byte of it is not what was written."""
    with file.path.open("rb") as opened:
        pages = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)  # never written; a writable view has an address
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    parts = [*file.units, file.embedding]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        found = pool.map(lambda part: checksum(start + part.offset, part.size), parts)
        if [part.checksum for part in parts] != list(found):
            return None
    stack = _stack(pieces.config)
    stack.lender = pages
    for index, unit in enumerate(file.units):
        stack.lend_unit(index, start + unit.offset, unit.size)
    rows, width = pieces.config.vocab_size, pieces.config.hidden_size
    table = torch.frombuffer(pages, dtype=torch.bfloat16, count=rows * width, offset=file.embedding.offset)
    return _decoder(pieces, stack, table.view(rows, width), pieces.final_norm())


def _stack(config: ModelConfig) -> Stack:
    return Stack(shape_of(config), config.num_layers, threads=num_threads(), kind=wanted_kind() or "")


def _decoder(pieces: Pieces, stack: Stack, embedding: Tensor, final_norm: nn.Module) -> NativeDecoder:
    counted = Decoder(pieces.config, pieces.stored.dtype, "meta").num_parameters
    return NativeDecoder.over(pieces.config, stack, embedding, final_norm.requires_grad_(False), counted)
