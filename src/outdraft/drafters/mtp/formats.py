"""MTP layers that others keep: inside a target, by Qwen3-Next's names, or by themselves, by speculators'.

mtp           mtp.fc, mtp.layers.0.*, ...: a part of a model, or a file of its own, which is ours
speculators   mtp_layers.0.input_proj, ...; config.json names the target, so that `vllm serve DIR` finds it
"""

import json
from pathlib import Path

import torch

from outdraft.core.errors import CapabilityError
from outdraft.core.head_format import HeadFormat
from outdraft.drafters.mtp.net import SPECULATORS, MtpNet, load_mtp, save_mtp, theirs
from outdraft.models.base import Decoder
from outdraft.models.families import ARCHITECTURES
from outdraft.models.foreign_heads import read_config, tensor_names, write_directory
from outdraft.models.port import TargetPort
from outdraft.weights.renamed import open_tensors
from outdraft.weights.safetensors import SINGLE, read_tensors

_MODEL_TYPE = "mtp"


def _is_speculators(directory: Path) -> bool:
    return read_config(directory).get("speculators_model_type") == _MODEL_TYPE


def _is_native(directory: Path) -> bool:
    """By itself: a whole model that holds an MTP layer is a model."""
    names = tensor_names(directory)
    return "mtp.fc.weight" in names and not any(name.startswith("model.") for name in names)


def _read(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> MtpNet:
    if dtype is None:
        tensors = open_tensors(directory)
        dtype = next(tensors[name].dtype for name in tensors if name.startswith(("mtp.", SPECULATORS)))
    return load_mtp(directory, target, dtype)


def _write_native(net: MtpNet, target: Decoder, target_name: str, directory: Path) -> None:
    save_mtp(net, directory)


def _write_speculators(net: MtpNet, target: Decoder, target_name: str, directory: Path) -> None:
    """Raises `CapabilityError` for more layers than one, which the layout has no names for."""
    if net.config.layers.num_layers != 1:
        raise CapabilityError(f"speculators' MTP has one layer, and this network {net.config.layers.num_layers}")
    save_mtp(net, directory)
    tensors = read_tensors(directory / SINGLE)
    layers = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    dtype, _ = layers.pop("torch_dtype"), layers.pop("architectures")
    scaling = layers.get("rope_scaling") or {"rope_type": "default"}
    layers["rope_parameters"] = {**scaling, "rope_theta": layers["rope_theta"]}
    architecture = ARCHITECTURES[target.config.architecture].class_name
    way = {"proposal_type": "greedy", "speculative_tokens": 3, "accept_tolerance": 0.0, "verifier_accept_k": 1}
    told = {
        "architectures": ["MTPDraftModel"], "speculators_model_type": _MODEL_TYPE, "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": _MODEL_TYPE, "default_proposal_method": "greedy", "proposal_methods": [way],
            "verifier": {"name_or_path": target_name, "architectures": [architecture]},
        },
        "dtype": dtype, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
        "transformer_layer_config": layers,
    }  # fmt: skip
    write_directory(directory, told, {theirs(name): tensor for name, tensor in tensors.items()})


FORMATS: tuple[HeadFormat[MtpNet, Decoder | TargetPort, Decoder], ...] = (
    HeadFormat(
        name="mtp", summary="an MTP layer by Qwen3-Next's names, which are ours too", matches=_is_native, read=_read,
        write=_write_native,
        served={"outdraft": "outdraft generate PROMPT --model {target} --drafter mtp --drafter-options model={out}"},
    ),
    HeadFormat(
        name="speculators", summary="speculators' MTP", matches=_is_speculators, read=_read, write=_write_speculators,
        served={"vllm": "vllm serve {out}"},
    ),
)  # fmt: skip
