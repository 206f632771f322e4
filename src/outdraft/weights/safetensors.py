"""Lazy reading of `model.safetensors`, single or sharded, and writing of a single one.

A store opens the headers only; a tensor is read when it is asked for. Where there are shards, their index decides: a
copy of a tensor in another file is not read, and a tensor that the index does not name is none. Everything that an
interrupted download leaves behind (an index without its shards, an empty or cut file, `*.incomplete`) is one clear
`ModelLoadError`.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json, require_file
from outdraft.options.shown import shown
from outdraft.weights.digest import weight_files
from outdraft.weights.source import TensorSource
from outdraft.weights.stored_bytes import SCALES, TensorHeader, check_scales, times_scales

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_log = logging.getLogger(__name__)
_CURE = "download it again"
_CONVERT = "convert them: transformers reads them with from_pretrained, and save_pretrained writes safetensors"


class TensorStore(TensorSource):
    """The tensors of a model directory by name. `copies`: names that also stand where the index does not place them."""

    def __init__(self, directory: Path) -> None:
        self.origin = directory
        index = read_used_index(directory)
        found = {path: _read_headers(path) for path in _files(directory, index)}
        for name, path in index.items():
            if name not in found[path]:
                raise ModelLoadError(f"{INDEX} lists the tensor '{name}' but {path.name} lacks it: {_CURE}")
        self._headers = {name: found[path][name] for name, path in index.items()}
        if not index:
            self._headers = {name: header for headers in found.values() for name, header in headers.items()}
        placed = {(name, path) for name, path in index.items()}
        stored = {(name, path) for path, headers in found.items() for name in headers} if index else set()
        self.copies = sorted({name for name, _ in stored - placed})
        self._scales = {name: self._headers.pop(name) for name in [*self._headers] if name.endswith(SCALES)}
        for name, scales in self._scales.items():
            check_scales(scales, self._headers.get(name.removesuffix(SCALES)), name)
        self._tell_unread()

    def _tell_unread(self) -> None:
        """One line where the directory holds tensors that are not read."""
        place = self.origin
        if (place / SINGLE).exists() and (place / INDEX).exists():
            _log.warning("%s: %s is read, and %s beside it is not", place.name, SINGLE, INDEX)
        if self.copies:
            _log.warning(
                "%s: %d tensors stand in files where %s does not place them (%s): they are not read there",
                place.name,
                len(self.copies),
                INDEX,
                ", ".join(self.copies[:3]),
            )

    def __getitem__(self, name: str) -> Tensor:
        tensor, scales = _stored(self._headers[name], name), self._scales.get(name + SCALES)
        return tensor if scales is None else times_scales(tensor, _stored(scales, name + SCALES))

    def __contains__(self, name: object) -> bool:
        return name in self._headers

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._headers[name].shape

    def dtype_name(self, name: str) -> str:
        return "BF16" if name + SCALES in self._scales else self._headers[name].dtype


def _stored(header: TensorHeader, name: str) -> Tensor:
    with _opened(header.path) as file:
        tensor: Tensor = file.get_tensor(name)
        return tensor


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of one file. Raises `ModelLoadError` for one that is cut or damaged."""
    names = _read_headers(path)
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in names}


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write one safetensors file that transformers reads too, readable to whom any other new file is.

    Raises `ConfigError` where it cannot be written: a full disk, a place that is no regular file.
    """
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with new_file(path) as beside:
        try:
            save_file(whole, beside, metadata={"format": "pt"})
        except SafetensorError as error:  # of the library's own code, which knows no error numbers
            raise ConfigError(f"{path} cannot be written: {error}; choose another path, or free space there") from error


def _files(directory: Path, index: Mapping[str, Path]) -> list[Path]:
    """The weight files, complete or an error."""
    partial = sorted(directory.glob("*.incomplete"))
    if partial:
        raise ModelLoadError(f"{directory} holds an unfinished download ({partial[0].name}): {_CURE}")
    if (directory / SINGLE).exists():
        return [directory / SINGLE]
    shards = sorted(set(index.values()))
    if not shards:
        others = sorted(path.name for pattern in ("*.bin", "*.pth") for path in directory.glob(pattern))
        whole = sorted(path.name for path in directory.glob("*.gguf"))
        hint = f": {_CURE}; if the model is published only as pickles (pytorch_model.bin), {_CONVERT}"
        if others:
            hint = f": its weights are only pickled ({others[0]}), which outdraft does not read: {_CONVERT}"
        if whole:
            hint = f": give the file itself, {directory / whole[0]}"
        raise ModelLoadError(f"{directory} has no {SINGLE} and no {INDEX}{hint}")
    absent = [_name(path) for path in shards if not os.path.exists(path)]  # also where a name is too long
    if absent:
        raise ModelLoadError(
            f"{INDEX} in {directory} names {len(absent)} of {len(shards)} shards that are not there "
            f"({', '.join(absent[:3])}): {_CURE}"
        )
    return shards


def find_missing(directory: Path) -> str | None:
    """Which weights a directory lacks by its own file names, in words; None where nothing shows that some are missing.

    Weights of other kinds than ours, as a draft head's, are weights too: who reads them says what is wrong with them.
    """
    absent = sorted({_name(path) for path in read_used_index(directory).values() if not os.path.exists(path)})
    if absent:
        return f"{len(absent)} of its weight files ({', '.join(absent[:3])})"
    if not (directory / INDEX).exists() and any(directory.glob("model-*-of-*.safetensors")):
        return INDEX
    return None if weight_files(directory) else "weights"


def _name(path: Path) -> str:
    """As an error shows it."""
    return path.name if len(path.name) < 80 else f"{path.name:.77}..."


def _read_headers(path: Path) -> dict[str, TensorHeader]:
    """What one file holds, by name."""
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
        headers = {
            name: TensorHeader(path=path, shape=tuple(one.get_shape()), dtype=str(one.get_dtype()))
            for name, one in slices.items()
        }
    for name, header in headers.items():
        if header.dtype.startswith("C"):  # C64
            raise ModelLoadError(f"{path}: the tensor {shown(name)} is complex, and weights are real numbers: {_CURE}")
    return headers


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of tensors. Raises `ModelLoadError` for one that is damaged, or was changed since it was read first."""
    try:
        if require_file(path).stat().st_size == 0:
            raise ModelLoadError(f"{path} is empty: {_CURE}")
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path} is cut short or damaged ({error}): {_CURE}") from error


def read_index(directory: Path) -> dict[str, Path]:
    """Tensor -> file; empty where there is no index.

    Raises `ModelLoadError` for one that is damaged, or that names files outside the directory.
    """
    path = directory / INDEX
    if not path.exists():
        return {}
    try:
        table = load_json(path)["weight_map"]
        files = {str(name): str(file) for name, file in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ModelLoadError(f"{path} is not a readable shard index ({error!r}): {_CURE}") from error
    for name, file in files.items():
        if Path(file).is_absolute() or ".." in Path(file).parts or "\0" in file:
            raise ModelLoadError(
                f"{path} places the tensor {shown(name)} in {shown(file)}, outside the directory: name a file in it"
            )
    return {name: directory / file for name, file in files.items()}


def read_used_index(directory: Path) -> dict[str, Path]:
    """The same; empty also where a single file stands beside the index, which is read in place of shards."""
    return {} if (directory / SINGLE).exists() else read_index(directory)
