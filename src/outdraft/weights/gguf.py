"""Reading a GGUF file, llama.cpp's container (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): key-value
metadata and tensors, whose blocks of small integers are made whole when a tensor is asked for, or given as they are.

The `gguf` package knows how tensors are stored; it is optional and imported here alone. F32, F16, BF16 and the types of
`nn/quant/blocks.py` are tested; what else the package can make whole is read too.
"""

import importlib
import math
import mmap
import struct
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outdraft.options.errors import ModelLoadError
from outdraft.weights.gguf_files import find_parts, require_whole
from outdraft.weights.gguf_header import GgufHeader, TensorPlace

_FLOATS = ("F32", "F16", "BF16")  # stored as they are; anything else is rounded in blocks
_CURE = "download it again"
_NUMBERS: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "F64": np.float64}
_NUMBERS |= {"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor as the file has it: numbers, or bytes [..., bytes of a row]. `type`: the package's name for that."""

    type: Any
    data: np.ndarray[Any, Any]


class GgufFile:
    """Metadata by key, tensors by llama.cpp's name, of one file or of all its parts, whichever is named.

    Raises:
        ModelLoadError: no `gguf` package, a damaged file, parts that do not fit, a block type that is not known.
    """

    def __init__(self, path: Path) -> None:
        self._gguf = _package(path)
        self._tensors: dict[str, Stored] = {}
        self._sizes: dict[str, tuple[int, ...]] = {}
        headers, parts = [], find_parts(path)
        try:
            for part in parts:
                headers.append(header := GgufHeader(part))
                self._tensors |= {name: self._stored(header, place) for name, place in header.tensors.items()}
                self._sizes |= {name: place.sizes for name, place in header.tensors.items()}
            require_whole(parts, headers)
        except (ValueError, KeyError, OverflowError, MemoryError, OSError, RecursionError, struct.error) as error:
            size = part.stat().st_size
            raise ModelLoadError(f"{part} ({size} bytes) is no GGUF file, or cut short ({error}): {_CURE}") from error
        self.path, self._header, self._maps = parts[0], headers[0], [one.data for one in headers]

    def get(self, key: str, default: Any = None) -> Any:
        """The metadata value of this key: a number, a string, or a list of them."""
        try:
            return self._header.get(key, default)
        except (ValueError, struct.error) as error:  # bytes that are no UTF-8
            raise ModelLoadError(f"{self.path}: the metadata {key!r} are damaged ({error}): {_CURE}") from error

    def types(self, key: str) -> tuple[int, int | None]:
        """As `GgufHeader.types`."""
        return self._header.types(key)

    def _stored(self, header: GgufHeader, place: TensorPlace) -> Stored:
        """Raises `ValueError` for an unknown type, or data behind the file's end."""
        kind = self._gguf.GGMLQuantizationType(place.type)
        block, size = self._gguf.constants.GGML_QUANT_SIZES[kind]
        count = math.prod(place.sizes)
        if place.sizes[-1] % block:
            raise ValueError(f"rows of {place.sizes[-1]} numbers do not divide into blocks of {block}")
        raw = np.frombuffer(header.data, np.uint8, count // block * size, header.data_start + place.start)
        if (numbers := _NUMBERS.get(kind.name)) is not None:
            return Stored(type=kind, data=raw.view(numbers).reshape(place.sizes))
        return Stored(type=kind, data=raw.reshape(*place.sizes[:-1], place.sizes[-1] // block * size))

    def _release(self) -> None:
        """Let go of what memory holds of the mapped files: who reads a tensor again gets the system's copy of it."""
        if sys.platform == "linux":
            for data in self._maps:
                data.madvise(mmap.MADV_DONTNEED)

    def names(self) -> list[str]:
        return list(self._tensors)

    def keys(self, prefix: str) -> list[str]:
        """All metadata keys that begin so."""
        return [key for key in self._header.names() if key.startswith(prefix)]

    def shape(self, name: str) -> tuple[int, ...]:
        """Slowest dimension first, as everywhere but in GGUF."""
        return self._sizes[name]

    def kind(self, name: str) -> str:
        """The storage type: F32, F16, BF16, Q8_0, Q4_K, ..."""
        return str(self._tensors[name].type.name)

    def is_rounded(self, name: str) -> bool:
        """Whether it is stored in blocks of small integers."""
        return self.kind(name) not in _FLOATS

    def num_bytes(self, name: str) -> int:
        """How many bytes the tensor takes in the file."""
        return self._tensors[name].data.nbytes

    def shares(self) -> dict[str, float]:
        """Each storage type's share of the tensors' bytes, the largest first."""
        sizes: Counter[str] = Counter()
        for name in self._tensors:
            sizes[self.kind(name)] += self.num_bytes(name)
        return {kind: size / sizes.total() for kind, size in sizes.most_common() if size}

    def rounding(self) -> str:
        """The block types of this file, sorted: "q4_k-q6_k"; "" if there are none."""
        kinds = {self.kind(name) for name in self._tensors} - set(_FLOATS)
        return "-".join(sorted(kind.lower() for kind in kinds))

    def stored(self, name: str) -> Stored:
        """A tensor as it lies in the mapped file."""
        return self._tensors[name]

    def tensor(self, name: str) -> Tensor:
        """One tensor made whole: float32, or the very bfloat16 or float16 that is stored."""
        made = torch.tensor(self.floats(name))  # a copy: the file is mapped
        return made.to({"BF16": torch.bfloat16, "F16": torch.float16}.get(self.kind(name), torch.float32))

    def floats(self, name: str, rows: slice = slice(None)) -> np.ndarray[Any, Any]:
        """A tensor, or these of its rows, as float32."""
        self._release()
        tensor, kind = self._tensors[name], self.kind(name)
        try:
            is_whole = kind in ("I32", "I64")  # ids, which float32 holds
            whole = tensor.data[rows] if is_whole else self._gguf.quants.dequantize(tensor.data[rows], tensor.type)
        except NotImplementedError as error:  # what the package raises for a type that it does not know
            raise ModelLoadError(
                f"tensor '{name}' in {self.path} is of type {kind}, which the gguf package cannot read: "
                "take a Q4_K_M, Q8_0 or BF16 file of the same model"
            ) from error
        made: np.ndarray[Any, Any] = np.asarray(whole, np.float32).reshape(-1, *self.shape(name)[1:])
        return made

    def blocks(self, name: str) -> Tensor:
        """The bytes of a tensor that is stored in blocks: uint8 [out, bytes of a row] over the mapped file."""
        self._release()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it cannot be written
            return torch.from_numpy(self._tensors[name].data)


def _package(path: Path) -> Any:
    try:
        return importlib.import_module("gguf")
    except ImportError as error:
        raise ModelLoadError(
            f"{path} is a GGUF file, and the gguf package is not installed to read it: `pip install gguf`"
        ) from error
