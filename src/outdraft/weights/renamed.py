"""Tensors under other names, or in memory already; and whatever file of a directory holds them.

A head of another project lies in model.safetensors, in a file of its own name, or in PyTorch's pickles.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from pathlib import Path

from torch import Tensor

from outdraft.weights.pickled import PICKLED, read_pickled
from outdraft.weights.safetensors import INDEX, SINGLE, TensorStore, read_tensors
from outdraft.weights.source import TensorSource


class NamedTensors(TensorSource):
    """Tensors of another source under other names (name here -> name there)."""

    def __init__(self, source: TensorSource, names: Mapping[str, str]) -> None:
        self.origin, self._source, self._names = source.origin, source, names

    def __getitem__(self, name: str) -> Tensor:
        return self._source[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(self._names[name])

    def dtype_name(self, name: str) -> str:
        return self._source.dtype_name(self._names[name])


class HeldTensors(TensorSource):
    """Tensors that are in memory."""

    def __init__(self, tensors: Mapping[str, Tensor], origin: Path) -> None:
        self.origin, self._tensors = origin, tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def dtype_name(self, name: str) -> str:
        return str(self._tensors[name].dtype).removeprefix("torch.")


def open_tensors(directory: Path, files: Seq[str] = (), prefix: str = "") -> TensorSource:
    """The tensors of the first of `files` that is there; else the model's whose names begin with `prefix`, without it.

    A pickle is read where no safetensors are, as tensors only, never as code. Raises `ModelLoadError` for what is
    damaged, missing, or holds more than tensors.
    """
    for path in (directory / name for name in files):
        if path.exists():
            return HeldTensors(read_tensors(path) if path.suffix == ".safetensors" else read_pickled(path), path)
    path = directory / PICKLED
    if path.exists() and not any((directory / name).exists() for name in (SINGLE, INDEX)):
        found: TensorSource = HeldTensors(read_pickled(path), path)
    else:
        found = TensorStore(directory)
    if not prefix:
        return found
    return NamedTensors(found, {name.removeprefix(prefix): name for name in found if name.startswith(prefix)})
