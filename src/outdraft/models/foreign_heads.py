"""Reading heads that other projects wrote: their configuration and tensors, wherever they keep them.

Nothing is believed that the files claim: names and shapes are compared with the network's before anything is copied.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from outdraft.core.errors import ModelLoadError
from outdraft.core.head_format import HeadFormat
from outdraft.core.registry import find_learner, learner_names
from outdraft.models.base import Decoder
from outdraft.models.load import read_json
from outdraft.models.naming import Entry, stored_shapes
from outdraft.models.port import TargetPort
from outdraft.weights.pickled import PICKLED, read_pickled
from outdraft.weights.safetensors import SINGLE, TensorStore, read_tensors, save_tensors

Net = TypeVar("Net", bound=nn.Module)
_TYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def read_config(directory: Path) -> Mapping[str, Any]:
    """What config.json says; nothing where there is none that can be read."""
    try:
        return read_json(directory / "config.json")
    except ModelLoadError:
        return {}


def holds(directory: Path, prefix: str) -> bool:
    """Whether a tensor of the directory's safetensors has a name that begins so."""
    try:
        return any(name.startswith(prefix) for name in TensorStore(directory))
    except ModelLoadError:
        return False


def all_formats() -> Iterator[tuple[str, HeadFormat[Any, Any, Any]]]:
    """Every kind of draft that ships, with every layout of its directories."""
    for kind in learner_names():
        for one in find_learner(kind).formats:
            yield kind, one


def recognise(directory: Path) -> tuple[str, HeadFormat[Any, Any, Any] | None] | None:
    """Which kind of draft lies in a directory, and its layout where the kind has several; None: nobody knows it."""
    for kind, one in all_formats():
        if one.matches(directory):
            return kind, one
    told = read_config(directory)
    return next(((kind, None) for kind in learner_names() if find_learner(kind).is_named(told)), None)


def tensor_names(directory: Path) -> frozenset[str]:
    """The names of the tensors in a directory, PyTorch's own file included; none where nothing can be read."""
    path = directory / PICKLED
    try:
        if path.exists() and not (directory / SINGLE).exists():
            return frozenset(read_pickled(path))
        return frozenset(TensorStore(directory))
    except ModelLoadError:
        return frozenset()


def stored_dtype(directory: Path) -> torch.dtype:
    """The type of the first tensor of model.safetensors; float32 where it is none to compute in."""
    store = TensorStore(directory)
    return _TYPES.get(store.dtype_name(next(iter(store))), torch.float32)


def find_tensors(directory: Path, files: Seq[str], prefix: str = "") -> dict[str, Tensor]:
    """The tensors of the first of `files` that is there; else those of the model whose names begin with `prefix`,
    without it. Raises `ModelLoadError`."""
    for path in (directory / name for name in files):
        if path.exists():
            return read_tensors(path) if path.suffix == ".safetensors" else read_pickled(path)
    store = TensorStore(directory)
    return {name.removeprefix(prefix): store[name] for name in store if name.startswith(prefix)}


def fill_head(net: Net, tensors: Mapping[str, Tensor], table: Iterable[Entry], what: str) -> Net:
    """Copy another project's tensors into the network. Raises `ModelLoadError` for the first that does not fit.

    table: every parameter's name there. what: the head and where it is, for the message.
    """
    own, left = dict(net.named_parameters()), dict(tensors)
    with torch.no_grad():
        for entry in table:
            parameter = own.pop(entry.ours)
            for name, shape in zip(entry.theirs, stored_shapes(entry, tuple(parameter.shape)), strict=True):
                if name not in left:
                    raise ModelLoadError(f"{what}: the tensor {name} is missing")
                if tuple(left[name].shape) != shape:
                    raise ModelLoadError(f"{what}: {name} has the shape {list(left[name].shape)}, not {list(shape)}")
            parameter.copy_(entry.join([left.pop(name) for name in entry.theirs]))
    assert not own, own.keys()
    if left:
        raise ModelLoadError(f"{what}: {len(left)} tensors have no meaning here ({', '.join(sorted(left)[:3])})")
    return net.eval().requires_grad_(False)


def told_apart(net: nn.Module, table: Iterable[Entry]) -> dict[str, Tensor]:
    """The network's parameters under another project's names."""
    own = dict(net.named_parameters())
    return {name: part for entry in table for name, part in entry.split(own[entry.ours].detach()).items()}


def save_foreign(told: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a file of tensors, and config.json beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "config.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    save_tensors(tensors, path)


def read_head(
    directory: Path,
    formats: Seq[HeadFormat[Net, Decoder | TargetPort, Any]],
    target: Decoder | TargetPort,
    dtype: torch.dtype | None,
    *,
    what: str,
) -> Net:
    """The network in a directory of any of the formats. Raises `ModelLoadError` where it is of none."""
    for one in formats:
        if one.matches(directory):
            return one.read(directory, target, dtype)
    known = "; ".join(f"{one.name}: {one.summary}" for one in formats)
    raise ModelLoadError(f"{directory} holds no {what} in a layout that outdraft reads ({known})")
