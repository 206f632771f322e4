"""A model written as one GGUF file whose weights are rounded in blocks, which llama.cpp and outdraft load.

    GGUF file               metadata as they are, matrices rounded, everything else byte for byte
    Hugging Face directory  the same, over a whole GGUF file that is written first and removed at the end

Rows are read, rounded and forgotten some at a time; one tensor's bytes are in memory at once.
"""

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from outdraft.models.files.gguf_families import FAMILIES
from outdraft.models.files.gguf_keys import require_model
from outdraft.models.files.gguf_mixtures import MIXTURES, Model, types_of
from outdraft.models.files.gguf_write import write_file, write_gguf
from outdraft.nn.quant.block_codes import quantize
from outdraft.nn.quant.blocks import BLOCKS
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.options.new_file import new_file
from outdraft.weights.gguf import GgufFile
from outdraft.weights.gguf_files import is_gguf

Tell = Callable[[int, int], object]  # (weights done, weights in all)
_AT_ONCE = 1 << 22  # weights that are read from the file at once
_REPLACED = ("general.architecture", "general.alignment", "general.quantization_version", "general.file_type")
_log = logging.getLogger(__name__)


def write_rounded_gguf(
    source: Path, out: Path, mixture: str, progress: Tell = lambda done, count: None
) -> dict[str, str]:
    """Write the model of a GGUF file or a Hugging Face directory as the new file `out`; returns each tensor's type.

    mixture: a key of `MIXTURES`, such as "q4_k_m": llama.cpp's name for which tensor gets which type.

    Raises:
        ConfigError: `out` exists or cannot be written, or no mixture has this name.
        ModelLoadError: no `gguf` package, a damaged or unknown model, weights that are no finite numbers.
    """
    if mixture not in MIXTURES:
        raise ConfigError(f"type={mixture!r} is not known{near_miss(mixture, MIXTURES)} (known: {', '.join(MIXTURES)})")
    if out.exists():
        raise ConfigError(f"{out} exists already: name a new file, or remove it first")
    with new_file(out) as new, _opened(source, out.parent) as file:
        return _Rounding(file, mixture).write(new, progress)


@contextmanager
def _opened(source: Path, beside: Path) -> Iterator[GgufFile]:
    if source.is_file() and is_gguf(source):
        yield GgufFile(source)
        return
    with TemporaryDirectory(dir=beside, prefix=".whole-") as place:
        write_gguf(source, whole := Path(place) / "whole.gguf")
        yield GgufFile(whole)


class _Rounding:
    def __init__(self, file: GgufFile, mixture: str) -> None:
        require_model(file)
        self._file, self._mixture = file, mixture
        self._arch = file.get("general.architecture")
        if self._arch not in FAMILIES:
            raise ModelLoadError(
                f"{file.path}: general.architecture={self._arch!r} is not rounded here (known: {', '.join(FAMILIES)}): "
                "use llama.cpp's llama-quantize"
            )
        self._gguf: Any = importlib.import_module("gguf")
        shapes = {name: file.shape(name) for name in file.names()}
        kinds = types_of(shapes, MIXTURES[mixture], self._model())
        self._kinds = {name: kinds.get(name, file.kind(name)) for name in shapes}
        again = sorted({file.kind(name) for name in kinds if file.is_rounded(name) and file.kind(name) != kinds[name]})
        if again:
            _log.warning(
                "%s: its weights (%s) are rounded once more: a file of F32, F16 or BF16 loses less",
                file.path.name,
                ", ".join(again),
            )

    def _model(self) -> Model:
        layers, heads, kv_heads = (
            self._file.get(f"{self._arch}.{key}")
            for key in ("block_count", "attention.head_count", "attention.head_count_kv")
        )
        kv_heads = heads if kv_heads is None else kv_heads
        if not all(isinstance(one, int) for one in (layers, heads, kv_heads)):
            raise ModelLoadError(
                f"{self._file.path} has no whole number of layers and heads: use llama.cpp's llama-quantize"
            )
        largest = layers == 80 and (self._arch == "qwen2" or (self._arch == "llama" and heads != kv_heads))
        return Model(num_layers=layers, shared=heads // max(1, kv_heads), is_largest=largest)

    def write(self, path: Path, progress: Tell) -> dict[str, str]:
        writer = self._gguf.GGUFWriter(path, self._arch)
        self._add_metadata(writer)
        for name, kind in self._kinds.items():
            shape = self._file.shape(name)
            stored = self._gguf.GGMLQuantizationType[kind]
            block, size = self._gguf.constants.GGML_QUANT_SIZES[stored]
            floats = np.dtype(np.float32)  # what `shape` counts; as bytes the package would take it for a row's bytes
            writer.add_tensor_info(name, shape, floats, prod(shape) // block * size, stored)
        write_file(writer, self._tensors(progress))
        return dict(self._kinds)

    def _tensors(self, progress: Tell) -> Iterator[np.ndarray[Any, Any]]:
        total, done = sum(prod(self._file.shape(name)) for name in self._kinds), 0
        for name, kind in self._kinds.items():
            parts = []
            for part in self._parts(name, kind):
                parts.append(part)
                done += len(part) * prod(self._file.shape(name)[1:])
                progress(done, total)
            yield parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _add_metadata(self, writer: Any) -> None:
        file, types = self._file, self._gguf.GGUFValueType
        for key in file.keys(""):
            if key in _REPLACED or key.startswith("split.") or (value := file.get(key)) == []:
                continue
            kind, inner = file.types(key)
            writer.add_key_value(key, value, types(kind), None if inner is None else types(inner))
        writer.add_quantization_version(self._gguf.GGML_QUANT_VERSION)
        writer.add_file_type(self._gguf.LlamaFileType[f"MOSTLY_{self._mixture.upper()}"])

    def _parts(self, name: str, kind: str) -> Iterator[np.ndarray[Any, Any]]:
        """The tensor as the new file has it, some rows after others."""
        if kind == self._file.kind(name):
            yield self._file.stored(name).data
            return
        num_rows, width = self._file.shape(name)
        step = max(1, _AT_ONCE // width)
        for start in range(0, num_rows, step):
            rows = self._file.floats(name, slice(start, start + step))
            if not np.isfinite(rows).all():
                raise ModelLoadError(f"tensor '{name}' in {self._file.path} has a weight that is no finite number")
            yield self._rounded(rows, kind, name)

    def _rounded(self, rows: np.ndarray[Any, Any], kind: str, name: str) -> np.ndarray[Any, Any]:
        if kind not in BLOCKS:
            return rows.astype(np.float16)
        made = quantize(torch.tensor(rows), kind)
        if not BLOCKS[kind].are_finite(made):
            raise ModelLoadError(
                f"tensor '{name}' in {self._file.path} has weights too large for {kind}, whose scales are 16-bit floats"
            )
        return made.numpy()
