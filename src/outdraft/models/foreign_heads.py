"""Reading heads that other projects wrote: their configuration and tensors, wherever they keep them.

Nothing is believed that the files claim: names and shapes are compared with the network's before anything is copied.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from outdraft.core.errors import ModelLoadError
from outdraft.core.head_format import HeadFormat
from outdraft.models.load import read_json
from outdraft.models.port import TargetFacts
from outdraft.weights.pickled import read_pickled
from outdraft.weights.safetensors import TensorStore, read_tensors

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


def fill_head(net: Net, tensors: Mapping[str, Tensor], what: str) -> Net:
    """Copy tensors into the parameters of these names. Raises `ModelLoadError` for the first that does not fit.

    what: the head and where it is, for the message.
    """
    own = dict(net.named_parameters())
    for name, parameter in own.items():
        if name not in tensors:
            raise ModelLoadError(f"{what}: a tensor is missing ({name} of the network)")
        if tensors[name].shape != parameter.shape:
            raise ModelLoadError(
                f"{what}: {name} of the network has the shape {list(parameter.shape)}, and the file's tensor "
                f"{list(tensors[name].shape)}"
            )
    if unknown := sorted(tensors.keys() - own.keys()):
        raise ModelLoadError(f"{what}: {len(unknown)} tensors have no meaning here ({', '.join(unknown[:3])})")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])
    return net.eval().requires_grad_(False)


def read_head(
    directory: Path,
    formats: Seq[HeadFormat[Net, TargetFacts, Any]],
    facts: TargetFacts,
    dtype: torch.dtype | None,
    *,
    what: str,
) -> Net:
    """The network in a directory of any of the formats. Raises `ModelLoadError` where it is of none."""
    for one in formats:
        if one.matches(directory):
            return one.read(directory, facts, dtype)
    known = "; ".join(f"{one.name}: {one.summary}" for one in formats)
    raise ModelLoadError(f"{directory} holds no {what} in a layout that outdraft reads ({known})")
