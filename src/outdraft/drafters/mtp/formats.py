"""MTP layers that others keep: inside a target, by Qwen3-Next's names, or by themselves, by speculators'.

mtp           mtp.fc, mtp.layers.0.*, ...: a part of a model, or a file of its own, which is ours
speculators   mtp_layers.0.input_proj, ...; config.json names the target, so that `vllm serve DIR` finds it
deepseek      model.layers.N.eh_proj, ...: a part of a model

Layers that outdraft does not run, and those inside a whole model, are renamed only (`by_name.py`).
"""

from pathlib import Path
from typing import Any

import torch

from outdraft.core.head_format import HeadFormat, served_here
from outdraft.drafters.mtp.by_name import (
    QWEN,
    SPECULATORS,
    NamedLayer,
    holds_deepseek,
    holds_qwen,
    holds_speculators,
    speculators_tensors,
    take,
    to_speculators,
    write_deepseek,
    write_qwen,
)
from outdraft.drafters.mtp.net import MtpNet, load_mtp, save_mtp
from outdraft.drafters.shared.learning.vocab import require_whole
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.files.foreign_heads import (
    read_config,
    speculators_config,
    stored_dtype,
    tensor_names,
    write_directory,
)
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError
from outdraft.options.read_file import load_json
from outdraft.weights.renamed import open_tensors
from outdraft.weights.safetensors import SINGLE, read_tensors

_MODEL_TYPE = "mtp"


def _is_native(directory: Path) -> bool:
    """By itself: a whole model that holds an MTP layer is a model."""
    names = tensor_names(directory)
    return "mtp.fc.weight" in names and not any(name.startswith("model.") for name in names)


def _read(directory: Path, target: Decoder | TargetPort | None, dtype: torch.dtype | None) -> MtpNet | NamedLayer:
    if target is None:
        return take(directory)
    if dtype is None:
        dtype = stored_dtype(open_tensors(directory), (QWEN, SPECULATORS))
    return load_mtp(directory, target, dtype)


def _write_native(net: MtpNet | NamedLayer, target: Decoder | None, target_name: str, directory: Path) -> None:
    if isinstance(net, NamedLayer):
        write_qwen(net, directory)
    else:
        save_mtp(net, directory)


def _write_deepseek(net: MtpNet | NamedLayer, target: Decoder | None, target_name: str, directory: Path) -> None:
    """Raises `CapabilityError` for a layer by itself that outdraft runs: no target with these names has such a one."""
    if isinstance(net, MtpNet):
        raise CapabilityError(f"DeepSeek's names are for its own layers, and this one is of {net.shape.architecture}")
    write_deepseek(net, directory)


def _write_speculators(net: MtpNet | NamedLayer, target: Decoder | None, target_name: str, directory: Path) -> None:
    """Raises `CapabilityError` for more layers than one, which the layout has no names for."""
    if isinstance(net, NamedLayer):
        layers, dtype = dict(net.config), net.config.get("dtype", net.config.get("torch_dtype"))
        told = _told(layers, dtype, list(net.config["architectures"]), target_name)
        write_directory(directory, told, speculators_tensors(net))
        return
    require_whole(net, "speculators'")
    if net.config.layers.num_layers != 1:
        raise CapabilityError(f"speculators' MTP has one layer, and this network {net.config.layers.num_layers}")
    assert target is not None
    save_mtp(net, directory)
    tensors = read_tensors(directory / SINGLE)
    layers = load_json(directory / "config.json")
    dtype, _ = layers.pop("torch_dtype"), layers.pop("architectures")
    scaling = layers.get("rope_scaling") or {"rope_type": "default"}
    layers["rope_parameters"] = {**scaling, "rope_theta": layers["rope_theta"]}
    told = _told(layers, dtype, [ARCHITECTURES[target.config.architecture].class_name], target_name)
    write_directory(directory, told, {to_speculators(name): tensor for name, tensor in tensors.items()})


def _told(layers: dict[str, Any], dtype: str | None, architectures: list[str], target_name: str) -> dict[str, Any]:
    """The config.json of speculators' layout. `architectures`: of the target."""
    return {
        "architectures": ["MTPDraftModel"],
        **speculators_config(_MODEL_TYPE, target_name, architectures),
        "dtype": dtype,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
        "transformer_layer_config": layers,
    }


FORMATS: tuple[HeadFormat[MtpNet | NamedLayer, Decoder | TargetPort | None, Decoder], ...] = (
    HeadFormat(
        name="mtp",
        summary="an MTP layer by Qwen3-Next's names, which are ours too",
        matches=_is_native,
        read=_read,
        write=_write_native,
        by_name=holds_qwen,
        served={"outdraft": served_here("mtp")},
    ),
    HeadFormat(
        name="speculators",
        summary="speculators' MTP",
        matches=lambda directory: read_config(directory).get("speculators_model_type") == _MODEL_TYPE,
        read=_read,
        write=_write_speculators,
        by_name=holds_speculators,
        served={"vllm": "vllm serve {out}"},
    ),
    HeadFormat(
        name="deepseek",
        summary="an MTP layer by DeepSeek-V3's names",
        matches=lambda directory: False,
        read=_read,
        write=_write_deepseek,
        by_name=holds_deepseek,
    ),
)
