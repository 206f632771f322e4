"""MTP layers as checkpoints hold them: taken out of a target and given other names, never run.

A layer with experts, or with DeepSeek's attention, belongs to a target that does not load here. Its tensors can all the
same go from one project's names to another's and back, bit by bit.

    Qwen3-Next    mtp.fc, mtp.pre_fc_norm_*, mtp.norm, mtp.layers.0.*           experts one by one
    DeepSeek-V3   model.layers.N.{eh_proj, enorm, hnorm, shared_head.norm, *}   N: the target's number of layers
    speculators   mtp_layers.0.{input_proj, ...}                                experts together

Together they are experts.gate_up_proj [E, 2 I, D], gate above up, and experts.down_proj [E, D, I].
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.drafters.shared.features.borrowed_head import LAYERS
from outdraft.models.files.foreign_heads import check_beside_layers, read_config, tensor_names, write_directory
from outdraft.models.files.load import read_json
from outdraft.options.errors import CapabilityError, ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.renamed import open_tensors

QWEN, SPECULATORS = "mtp.", "mtp_layers.0."
_REST = "layers.0."  # whatever has no name of its own in the tables
_TO_SPECULATORS = {
    "fc.": "input_proj.",
    "norm.": "final_layernorm.",
    "pre_fc_norm_hidden.": "hidden_layernorm.",
    "pre_fc_norm_embedding.": "token_layernorm.",
}
_TO_DEEPSEEK = {
    "fc.": "eh_proj.",
    "norm.": "shared_head.norm.",
    "pre_fc_norm_hidden.": "hnorm.",
    "pre_fc_norm_embedding.": "enorm.",
}
_JOIN = "eh_proj.weight"
COPIES = ("embed_tokens.", "lm_head.")  # the target's own, which trainers may save beside a layer
BESIDE = ("num_nextn_predict_layers",)  # in config.json, beside the layers' own keys in speculators' layout
_SHARED = ("embed_tokens.", "shared_head.head.")  # DeepSeek's layer repeats these two of its target
_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")
_EXPERTS = re.compile(r"(.+\.experts)\.(gate_up_proj|down_proj)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLayer:
    """The tensors of one layer, by Qwen3-Next's names, and the config.json of its target."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def holds_qwen(directory: Path) -> bool:
    """An MTP layer inside a whole model, or one with experts by itself."""
    names = tensor_names(directory)
    experts = any(name.startswith(QWEN) and ".experts." in name for name in names)
    return "mtp.fc.weight" in names and (experts or any(name.startswith("model.") for name in names))


def holds_deepseek(directory: Path) -> bool:
    """An MTP layer by DeepSeek's names."""
    return any(name.endswith(_JOIN) for name in tensor_names(directory))


def holds_speculators(directory: Path) -> bool:
    """An MTP layer by speculators' names that outdraft does not run: one with experts, or with DeepSeek's attention."""
    told = read_config(directory).get("transformer_layer_config")
    known = isinstance(told, dict) and told.get("model_type") in LAYERS
    return "mtp_layers.0.input_proj.weight" in tensor_names(directory) and not known


def to_speculators(name: str) -> str:
    """The name that speculators has for a tensor of Qwen3-Next's name."""
    return _renamed(name, _TO_SPECULATORS, SPECULATORS)


def from_speculators(name: str) -> str:
    """The name that Qwen3-Next's checkpoints have for a tensor of speculators' name."""
    return _original(name, _TO_SPECULATORS, SPECULATORS)


def take(directory: Path) -> NamedLayer:
    """What lies there, by whatever names, alone or inside a whole model."""
    raw = read_json(directory / "config.json")
    source = open_tensors(directory)
    if isinstance(raw.get("transformer_layer_config"), dict):
        check_beside_layers(raw, BESIDE)
    for part in ("transformer_layer_config", "text_config"):
        if isinstance(own := raw.get(part), dict):
            raw = {"architectures": raw.get("architectures"), **own}
    raw["architectures"] = classes = raw.get("architectures") or []
    if not isinstance(classes, list) or not all(isinstance(one, str) for one in classes):
        raise ModelLoadError(f"{directory}: architectures={shown(classes)} of config.json must be a list of names")
    if "mtp.fc.weight" in source:
        named = {name: source[name] for name in source if name.startswith(QWEN)}
    elif any(name.startswith(SPECULATORS) for name in source):
        if more := sorted(name for name in source if not name.startswith((SPECULATORS, *COPIES))):
            raise CapabilityError(
                f"{directory}: {more[0]} is not of the first MTP layer, and outdraft renames that alone"
            )
        named = _apart({from_speculators(name): source[name] for name in source if name.startswith(SPECULATORS)})
    else:
        (first, *more) = sorted(name.removesuffix(_JOIN) for name in source if name.endswith(_JOIN))
        if more:
            raise CapabilityError(f"{directory} holds {1 + len(more)} MTP layers, and outdraft renames one")
        named = {_original(name, _TO_DEEPSEEK, first): source[name] for name in source if name.startswith(first)}
    return NamedLayer(config=raw, tensors=named)


def write_qwen(layer: NamedLayer, directory: Path) -> None:
    """By itself, with its target's configuration."""
    write_directory(directory, layer.config, layer.tensors)


def write_deepseek(layer: NamedLayer, directory: Path) -> None:
    """By itself; the number of its target's layers is in the names."""
    count = layer.config.get("num_hidden_layers")
    if type(count) is not int or count < 0:
        raise ModelLoadError(
            f"num_hidden_layers={shown(count)} of the target's config.json must be a number: it stands in DeepSeek's "
            "names"
        )
    place = f"model.layers.{count}."
    write_directory(directory, layer.config, {_renamed(n, _TO_DEEPSEEK, place): t for n, t in layer.tensors.items()})


def speculators_tensors(layer: NamedLayer) -> dict[str, Tensor]:
    """By speculators' names, its experts together; embeddings and head are left to the target."""
    shared = tuple(f"{QWEN}{_REST}{name}" for name in _SHARED)
    own = {name: tensor for name, tensor in layer.tensors.items() if not name.startswith(shared)}
    return {to_speculators(name): tensor for name, tensor in _together(own).items()}


def _renamed(name: str, table: Mapping[str, str], place: str) -> str:
    own = name.removeprefix(QWEN)
    for ours, word in table.items():
        if own.startswith(ours):
            return f"{place}{word}{own.removeprefix(ours)}"
    if not own.startswith(_REST):
        raise CapabilityError(
            f"{name} is not of the first MTP layer, and other projects have names for one layer alone"
        )
    return place + own.removeprefix(_REST)


def _original(name: str, table: Mapping[str, str], place: str) -> str:
    own = name.removeprefix(place)
    for ours, word in table.items():
        if own.startswith(word):
            return f"{QWEN}{ours}{own.removeprefix(word)}"
    return f"{QWEN}{_REST}{own}"


def _together(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each layer's experts stacked: gate above up, and down."""
    found: dict[str, dict[str, dict[int, Tensor]]] = {}
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if match := _EXPERT.fullmatch(name):
            found.setdefault(match[1], {}).setdefault(match[3], {})[int(match[2])] = tensor
        elif ".experts." in name:
            raise CapabilityError(f"{name}: speculators has experts' weights together, and no name for this")
        else:
            made[name] = tensor
    for place, parts in found.items():
        numbers = list(range(len(parts.get("down_proj", ()))))
        if any(sorted(parts.get(part, ())) != numbers for part in ("gate_proj", "up_proj", "down_proj")):
            raise ModelLoadError(f"{place}: some expert lacks a weight; download the files again")
        gate, up, down = ([parts[part][i] for i in numbers] for part in ("gate_proj", "up_proj", "down_proj"))
        made[f"{place}.gate_up_proj"] = torch.stack([torch.cat(both) for both in zip(gate, up, strict=True)])
        made[f"{place}.down_proj"] = torch.stack(down)
    return made


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each expert's own weights again."""
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        match = _EXPERTS.fullmatch(name)
        if match is None:
            made[name] = tensor
            continue
        parts = ("gate_proj", "up_proj") if match[2] == "gate_up_proj" else ("down_proj",)
        if tensor.dim() != 3 or tensor.shape[1] % len(parts):
            raise ModelLoadError(f"{name} of shape {tuple(tensor.shape)} is not of experts: download the files again")
        for i, both in enumerate(tensor):
            for part, one in zip(parts, both.chunk(len(parts)), strict=True):
                made[f"{match[1]}.{i}.{part}.weight"] = one.clone()
    return made
