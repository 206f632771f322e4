"""A head or a small network of ours on disk: its configuration as config.json, its parameters as model.safetensors.

Nothing is believed that the files claim: the configuration's types and sizes are checked, and the network is laid out
without memory first, so that shapes are compared before any is taken.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

import torch
from torch import Tensor, nn

from outdraft.models.families.shared.fields import MOST_CHANNELS
from outdraft.models.files.foreign_heads import fill, instead, write_directory
from outdraft.models.files.load import read_json
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown
from outdraft.weights.safetensors import TensorStore

Config = TypeVar("Config")
Net = TypeVar("Net", bound=nn.Module)


def save_head(
    net: nn.Module,
    config: Any,
    directory: Path,
    *,
    model_type: str,
    dtype: torch.dtype | None = None,
    beside: Mapping[str, Tensor] = MappingProxyType({}),
) -> None:
    """Write a network's parameters and its configuration, a dataclass. `dtype`: of the file; its own by default.

    beside: tensors that are no parameters, which stay as they are.
    """
    own = {name: p.detach().to(dtype or p.dtype) for name, p in net.named_parameters()}
    write_directory(directory, {"model_type": model_type, **asdict(config)}, {**own, **beside})


def load_head(
    directory: Path,
    config_type: type[Config],
    make: Callable[[Config, torch.device | None], Net],
    *,
    model_type: str,
    what: str,
    beside: Collection[str] = (),
) -> Net:
    """The network in `directory`. `make`: lay it out, on this device or where it is to run; `what`: its name in errors;
    `beside`: tensors that are no parameters, which may be there.

    Raises `ModelLoadError` for another kind of model, and for files that are damaged or do not belong together.
    """
    raw = read_json(directory / "config.json")
    if raw.pop("model_type", None) != model_type:
        raise ModelLoadError(
            f"{directory} holds no {what} (config.json: model_type must be {model_type!r}){instead(directory)}"
        )
    where = f"{what} in {directory}"
    config = _read_config(raw, config_type, where)
    return fill(lambda device: make(config, device), None, TensorStore(directory), where, beside=beside)


def _read_config(raw: dict[str, Any], config_type: type[Config], where: str) -> Config:
    hints = get_type_hints(config_type)
    known = [one.name for one in fields(config_type)]  # type: ignore[arg-type]
    for key, value in raw.items():
        if key not in known:
            raise ModelLoadError(f"{where}: config.json has the unknown key {shown(key)}{near_miss(key, known)}")
        read = check_value(key, value, hints[key], of=f"the {where}", error=ModelLoadError)
        raw[key] = tuple(read) if isinstance(read, list) else read
        if isinstance(read, float) and not isfinite(read):
            raise ModelLoadError(f"{where}: {key}={shown(read)} of its config.json must be a finite number")
        if isinstance(read, int) and not 0 <= read <= _most(key):
            raise ModelLoadError(f"{where}: {key}={read} of its config.json must be a possible size")
    try:
        return config_type(**raw)
    except TypeError as error:
        raise ModelLoadError(f"{where}: its config.json is incomplete ({error})") from error


def _most(key: str) -> int:
    return 1 << 31 if key in ("vocab_size", "draft_vocab_size", "max_len") else MOST_CHANNELS
