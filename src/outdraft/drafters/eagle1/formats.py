"""EAGLE-1 directories that others serve. One layout of tensors; the class that config.json names differs.

    eagle    LlamaForCausalLM, as the authors write it, and vLLM wants it (which puts "Eagle" before it)
    sglang   LlamaForCausalLMEagle, the name that SGLang looks for; ours too

A file of the authors holds the target's embeddings too, and may be PyTorch's own. HASS trains the same network.
"""

import json
from pathlib import Path

import torch

from outdraft.core.head_format import HeadFormat
from outdraft.drafters.shared.features.last_feature import (
    ARCHITECTURE,
    LastFeatureNet,
    load_last_feature,
    save_last_feature,
)
from outdraft.models.base import Decoder
from outdraft.models.foreign_heads import read_config, stored_dtype, tensor_names
from outdraft.models.port import TargetPort
from outdraft.weights.renamed import open_tensors

_OURS = "outdraft generate PROMPT --model {target} --drafter eagle1 --drafter-options model={out}"
_VLLM = """vllm serve {target} --speculative-config \
'{"method": "eagle", "model": "{out}", "num_speculative_tokens": 3}'"""
_SGLANG = (
    "python -m sglang.launch_server --model-path {target} --speculative-algorithm EAGLE "
    "--speculative-draft-model-path {out} --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4"
)


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
    save_last_feature(net, directory)


def _write_authors(net: LastFeatureNet, target: Decoder, target_name: str, directory: Path) -> None:
    save_last_feature(net, directory)
    path = directory / "config.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    told["architectures"] = [ARCHITECTURE.removesuffix("Eagle")]
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _matches_authors(directory: Path) -> bool:
    return _is_eagle1(directory) and not _is_sglangs(directory)


FORMATS: tuple[HeadFormat[LastFeatureNet, Decoder | TargetPort, Decoder], ...] = (
    HeadFormat(
        name="sglang", summary="EAGLE-1 as SGLang wants it, which is ours too", matches=_is_sglangs, read=_read,
        write=_write, served={"outdraft": _OURS, "sglang": _SGLANG},
    ),
    HeadFormat(
        name="eagle", summary="EAGLE-1 as its authors write it", matches=_matches_authors, read=_read,
        write=_write_authors, served={"vllm": _VLLM},
    ),
)  # fmt: skip
