"""EAGLE-3 directories that others serve: speculators' layout, which is our own too, and the original one.

    speculators   config.json names its target, so that `vllm serve DIR` finds it; layers.0.*
    eagle         a flat Llama's config.json with draft_vocab_size; midlayer.*, as SGLang and the authors' code read it

Both say the taps in both conventions (`files.py`). A network of several layers has no name in the original.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from outdraft.core.head_format import HeadFormat, served_by_sglang, served_here
from outdraft.drafters.shared.features.fused.files import FLAGS, MASK, ORIGINAL, TAPS, FusedKind, read_fused
from outdraft.drafters.shared.features.fused.net import FusedNet
from outdraft.drafters.shared.features.fused.store import (
    Format,
    load_fused,
    read_stored,
    save_fused,
    speculators_format,
)
from outdraft.models.files.foreign_heads import read_config, tensor_names
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import CapabilityError
from outdraft.options.read_file import load_json
from outdraft.weights.safetensors import SINGLE, read_tensors, save_tensors

KIND = FusedKind(what="EAGLE-3 network", model_type="eagle3", architecture="Eagle3DraftModel")


read_eagle3, load_eagle3, save_eagle3 = partial(read_fused, KIND), partial(load_fused, KIND), partial(save_fused, KIND)


def _is_original(directory: Path) -> bool:
    told = read_config(directory)
    ours = "speculators_model_type" in told or str(told.get("model_type")).startswith("outdraft_")
    named = "draft_vocab_size" in told or ORIGINAL in str(told.get("architectures"))
    return named and not ours and MASK not in tensor_names(directory)


def _write_original(net: FusedNet, target: Decoder, target_name: str, directory: Path) -> None:
    """Raises `CapabilityError` for what the original layout cannot say."""
    config = net.config
    if config.layers.num_layers != 1:
        raise CapabilityError(f"the original layout has one layer, and this network {config.layers.num_layers}")
    if config.target_hidden_size != config.layers.hidden_size:
        raise CapabilityError("the original layout knows no network of another width than its target's")
    save_eagle3(net, directory)
    tensors = read_tensors(directory / SINGLE)
    save_tensors(
        {name.replace("layers.0.", "midlayer.", 1): tensor for name, tensor in tensors.items()}, directory / SINGLE
    )
    told: dict[str, Any] = load_json(directory / "config.json")
    flat = {
        **told["transformer_layer_config"],
        "architectures": [ORIGINAL],
        "torch_dtype": told["dtype"],
        "draft_vocab_size": config.draft_vocab_size,
        TAPS: told.get(TAPS),
        "eagle_config": told["eagle_config"],
        **{flag: told[flag] for flag in FLAGS},
    }
    (directory / "config.json").write_text(json.dumps(flat, indent=2) + "\n", encoding="utf-8")


FORMATS: tuple[Format, ...] = (
    speculators_format(
        KIND,
        summary="speculators' EAGLE-3 and 3.1, which is ours too",
        served={"outdraft": served_here("eagle3"), "vllm": "vllm serve {out}"},
    ),
    HeadFormat(
        name="eagle",
        summary="the original EAGLE-3: midlayer.*",
        matches=_is_original,
        read=partial(read_stored, KIND),
        write=_write_original,
        served={"sglang": served_by_sglang("EAGLE3", 3)},
    ),
)
