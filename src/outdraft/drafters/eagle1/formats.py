"""EAGLE-1 directories that others serve. One layout of tensors; the class that config.json names differs.

    eagle    LlamaForCausalLM, as the authors write it
    vllm     the same without fc.bias, for which vLLM has no room (it puts "Eagle" before the name)
    sglang   LlamaForCausalLMEagle, the name that SGLang looks for, with fc.bias, which it always reads; ours too

A file of the authors holds the target's embeddings too, and may be PyTorch's own. HASS trains the same network.
"""

import json
from dataclasses import replace
from pathlib import Path

import torch

from outdraft.core.head_format import HeadFormat, served_by_sglang, served_by_vllm, served_here
from outdraft.drafters.shared.features.last_feature import (
    ARCHITECTURE,
    LastFeatureNet,
    load_last_feature,
    save_last_feature,
)
from outdraft.drafters.shared.learning.vocab import require_whole
from outdraft.models.files.foreign_heads import read_config, stored_dtype, tensor_names
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError
from outdraft.options.read_file import load_json
from outdraft.weights.renamed import open_tensors


def _is_eagle1(directory: Path) -> bool:
    """A joining matrix and a layer without an input norm."""
    names = {name.removeprefix("model.") for name in tensor_names(directory)}
    first = "layers.0.post_attention_layernorm.weight"
    return {"fc.weight", first} <= names and "layers.0.input_layernorm.weight" not in names


def _is_sglangs(directory: Path) -> bool:
    return ARCHITECTURE in str(read_config(directory).get("architectures")) and _is_eagle1(directory)


def _read(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> LastFeatureNet:
    return load_last_feature(directory, target, dtype or stored_dtype(open_tensors(directory)))


def _write(net: LastFeatureNet, target: Decoder, target_name: str, directory: Path) -> None:
    require_whole(net, "SGLang's")
    save_last_feature(net if net.config.bias else _with_bias(net, target), directory)


def _with_bias(net: LastFeatureNet, target: Decoder) -> LastFeatureNet:
    """The same network with a bias of zeros."""
    made = LastFeatureNet(replace(net.config, bias=True), target, net.fc.weight.dtype)
    made.load_state_dict({**net.state_dict(), "fc.bias": torch.zeros_like(net.fc.weight[:, 0])})
    return made


def _write_vllm(net: LastFeatureNet, target: Decoder, target_name: str, directory: Path) -> None:
    if net.config.bias:
        raise CapabilityError(
            "this draft has a bias of its joining layer (fc.bias), and vLLM's EAGLE network has none: train one "
            "without it (outdraft train eagle1 --options bias=false), or serve this one elsewhere"
        )
    _write_authors(net, target, target_name, directory)


def _write_authors(net: LastFeatureNet, target: Decoder, target_name: str, directory: Path) -> None:
    require_whole(net, "EAGLE-1's")
    save_last_feature(net, directory)
    path = directory / "config.json"
    told = load_json(path)
    told["architectures"] = [ARCHITECTURE.removesuffix("Eagle")]
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


FORMATS: tuple[HeadFormat[LastFeatureNet, Decoder | TargetPort, Decoder], ...] = (
    HeadFormat(
        name="sglang",
        summary="EAGLE-1 as SGLang wants it, which is ours too",
        matches=_is_sglangs,
        read=_read,
        write=_write,
        served={"outdraft": served_here("eagle1"), "sglang": served_by_sglang("EAGLE", 3)},
    ),
    HeadFormat(
        name="eagle",
        summary="EAGLE-1 as its authors write it",
        matches=lambda directory: _is_eagle1(directory) and not _is_sglangs(directory),
        read=_read,
        write=_write_authors,
    ),
    HeadFormat(
        name="vllm",
        summary="the same without a bias, as vLLM wants it",
        matches=lambda directory: False,
        read=_read,
        write=_write_vllm,
        served={"vllm": served_by_vllm("eagle", 3)},
    ),
)
