"""Networks in published layouts: tensors by the names of others, read from safetensors or from PyTorch's own files.

Our parameters may be several of theirs in one (queries, keys and values): the rename tables of `models/naming.py` say
which. Nothing is believed that files claim: a network is laid out without memory and its shapes are compared first.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from outdraft.core.errors import ModelLoadError
from outdraft.models.naming import Entry, stored_shapes
from outdraft.weights.pickled import read_pickled
from outdraft.weights.safetensors import SINGLE, TensorStore, save_tensors
from outdraft.weights.sentinel import require_filled
from outdraft.weights.source import TensorSource

PICKLED = "pytorch_model.bin"
_TABLES = ("rotary_emb.inv_freq",)  # which can be computed
Net = TypeVar("Net", bound=nn.Module)


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


def open_tensors(directory: Path) -> TensorSource:
    """The tensors of a directory. A file of PyTorch's own is read as tensors only, never as code.

    Raises `ModelLoadError` for what is damaged, missing, or holds more than tensors.
    """
    path = directory / PICKLED
    if (directory / SINGLE).exists() or not path.exists():
        return TensorStore(directory)
    return HeldTensors(read_pickled(path), path)


def fill(
    make: Callable[[torch.device | None], Net], entries: Iterable[Entry], tensors: TensorSource, what: str, *,
    beside: Iterable[str] = (),
) -> Net:  # fmt: skip
    """A network with the parameters of `tensors`, not to be trained. `make`: lay it out on a device, or where it runs.

    Raises `ModelLoadError` for what is missing, misshapen, NaN or without a meaning; `what`: the network, in words;
    `beside`: tensors that are no parameters.
    """
    table = list(entries)
    known = {name for entry in table for name in entry.theirs} | set(beside)
    unknown = sorted(name for name in set(tensors) - known if not name.endswith(_TABLES))
    if unknown:
        raise ModelLoadError(f"{what}: {len(unknown)} tensors have no meaning here ({', '.join(unknown[:3])})")
    try:
        plan = dict(make(torch.device("meta")).named_parameters())
    except (RuntimeError, ZeroDivisionError) as error:  # sizes that PyTorch cannot count, or that do not divide
        raise ModelLoadError(f"{what}: its config.json asks for what cannot be ({error})") from error
    for entry in table:
        for name, shape in zip(entry.theirs, stored_shapes(entry, tuple(plan[entry.ours].shape)), strict=True):
            if name not in tensors or tensors.shape(name) != shape:
                found = f"has shape {tensors.shape(name)}" if name in tensors else "is missing"
                raise ModelLoadError(f"{what}: tensor {name!r} {found}; its config.json asks for {shape}")
    net = make(None)
    own = dict(net.named_parameters())
    with torch.no_grad():
        for entry in table:
            own[entry.ours].copy_(entry.join([tensors[name] for name in entry.theirs]))
    require_filled(own.items(), tensors.origin)
    return net.eval().requires_grad_(False)


def tensors_of_net(net: nn.Module, entries: Iterable[Entry], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """A network's parameters under the names of others. `dtype`: of the numbers; their own by default."""
    own, made = dict(net.named_parameters()), dict[str, Tensor]()
    for entry in entries:
        made |= entry.split(own[entry.ours].detach().to(dtype or own[entry.ours].dtype))
    return made


def write_directory(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """config.json and model.safetensors."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_tensors(tensors, directory / SINGLE)
