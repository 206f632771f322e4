"""A decoder whose weights do not fit in memory: some layers stay, the others are read from disk in every pass.

    layer      0        1        2        3        head
               disk     stays    disk     stays    stays        while 0 and 1 compute, a thread reads 2

The kernels, the packed bytes and the order of every sum are `NativeDecoder`'s, so the text is the same bit for bit
(weights in flash and in memory of a given size: Sheng et al., "FlexGen", 2023, https://arxiv.org/abs/2303.06865).
One pass costs one reading of what does not fit, however many rows it has: a reason to verify large trees.
Embedding rows are looked up in the file.
"""

import mmap
import os
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outdraft.kernels.checksum import checksum
from outdraft.kernels.decoder.rows import Span
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.native import PackedNetwork, embedding_scale
from outdraft.models.remake.packed_cache import packed_file, remake_packed
from outdraft.models.remake.packed_file import PackedFile
from outdraft.models.remake.pieces import Pieces
from outdraft.nn.quant.blocks import dequantize
from outdraft.nn.rope import RopeTables
from outdraft.options.errors import ModelLoadError
from outdraft.weights.direct import DirectFile, read_stamp, settled_stamp
from outdraft.weights.units import UnitReader


class StreamedDecoder(PackedNetwork):
    """A `Network` over the packed file of a model, with at most `memory` bytes of weights held at any time.

    Raises `ConfigError` where the memory cannot hold two layers.
    """

    dtype = torch.bfloat16
    device = torch.device("cpu")

    def __init__(self, pieces: Pieces, packed: PackedFile, memory: int) -> None:
        self.config = config = pieces.config
        self.num_parameters = pieces.num_parameters
        remake = partial(remake_packed, packed, pieces)
        self.units = UnitReader(DirectFile(packed.path), packed.units, memory, remake)
        self.stack = pieces.empty_stack()
        self.kernels = self.stack.kind
        self.rope = RopeTables(config.rope_kinds())
        self._norm = pieces.final_norm()
        self._embedding = EmbeddingRows(packed, config, remake)
        self._one_pass = Lock()  # the buffers serve one at a time
        for unit in self.units.resident:
            self._lend(unit)

    @property
    def pass_bytes(self) -> int:
        """Of weights that a pass computes with, wherever they come from."""
        return sum(unit.size for unit in self.units.units)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [N], positions [N] -> [N, D] float32."""
        return self._embedding.look_up(ids) * embedding_scale(self.config)

    def _compute(
        self,
        h: Tensor,
        places: Sequence[int],
        cos: Tensor,
        sin: Tensor,
        spans: Sequence[Span],
        layers: range,
        **kept: Any,
    ) -> None:
        """As `Stack.run`, a call for each layer that is streamed."""
        with self._one_pass:
            for together in self._calls(layers):
                self._bring(together[0])
                self.stack.run(h, places, cos, sin, spans, together, **kept)

    def _head(self, h: Tensor, *, norm: bool) -> Tensor:
        with self._one_pass:
            self._bring(self.config.num_layers)
            return self.stack.logits(h.float(), norm=norm)

    def _bring(self, unit: int) -> None:
        """Residents are lent for good."""
        if unit not in self.units.resident:
            self._lend(unit)

    def _lend(self, unit: int) -> None:
        self.stack.lend_unit(unit, self.units.bring(unit), self.units.units[unit].size)

    def _calls(self, layers: Sequence[int]) -> list[list[int]]:
        """Layers that one native call runs: at most its first is streamed."""
        calls: list[list[int]] = []
        for layer in layers:
            if not calls or layer not in self.units.resident:
                calls.append([])
            calls[-1].append(layer)
        return calls


class EmbeddingRows:
    """Rows of a table that stays in its file. The system may keep pages of it, as of any file that is read.

    A table that is not what was written is made again once. Raises `ModelLoadError` where that does not help.
    """

    def __init__(self, packed: PackedFile, config: ModelConfig, remake: Callable[[], None]) -> None:
        self._packed, self._row, self._remake = packed, packed.embedding.size // config.vocab_size, remake
        self._parts = config.quant.parts_of("embedding", 0) if config.quant is not None else ()
        self._open()

    def _open(self) -> None:
        if not self._is_whole():
            self._remake()
            if not self._is_whole():
                raise ModelLoadError(
                    f"{self._packed.path} is damaged in its embedding rows, from byte {self._packed.embedding.offset} "
                    "on: delete it, and it will be made again from the model"
                )
        if hasattr(os, "posix_fadvise"):
            place = self._file.fileno()
            os.posix_fadvise(place, 0, 0, os.POSIX_FADV_DONTNEED)  # what was read for the check
            os.posix_fadvise(place, self._packed.embedding.offset, self._packed.embedding.size, os.POSIX_FADV_RANDOM)

    def _is_whole(self) -> bool:
        """Of the file that stands there now: over pages that the system may take back at any time."""
        table = self._packed.embedding
        self._file = self._packed.path.open("rb", buffering=0)
        self._stamp = settled_stamp(self._file.fileno())
        if self._stamp[0] < table.offset + table.size:
            return False
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            start = np.frombuffer(pages, np.uint8).ctypes.data
            return checksum(start + table.offset, table.size) == table.checksum

    def look_up(self, ids: Tensor) -> Tensor:
        """ids [N] -> [N, D] float32."""
        place, start = self._file.fileno(), self._packed.embedding.offset
        rows = b"".join(os.pread(place, self._row, start + self._row * int(i)) for i in ids)
        if read_stamp(place) != self._stamp:  # another program wrote to it
            self._open()
            return self.look_up(ids)
        read = torch.frombuffer(bytearray(rows), dtype=torch.uint8).view(len(ids), -1)
        if not self._parts:
            return read.view(torch.bfloat16).float()
        return dequantize(read, self._parts[0][0], torch.bfloat16).float()


def load_streamed(pieces: Pieces, memory: int) -> StreamedDecoder:
    """The model of these pieces, with `memory` bytes for weights.

    Raises `CapabilityError`, `ConfigError`, `ModelLoadError` naming what does not fit.
    """
    return StreamedDecoder(pieces, packed_file(pieces), memory)
