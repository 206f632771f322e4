"""EAGLE-3 directories that others serve: speculators' layout, which is our own too, and the original one.

    speculators   config.json names its target, so that `vllm serve DIR` finds it; layers.0.*
    eagle         a flat Llama's config.json with draft_vocab_size; midlayer.*, as SGLang and the authors' code read it

Both say the taps in both conventions (`files.py`). A network of several layers has no name in the original.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch

from outdraft.core.head_format import HeadFormat, served_by_sglang, served_here
from outdraft.drafters.shared.features.fused.files import FLAGS, MASK, ORIGINAL, TAPS, FusedFiles, FusedKind, read_fused
from outdraft.drafters.shared.features.fused.net import FusedNet, Lent, entries_of
from outdraft.drafters.shared.features.fused.store import fill_fused, read_stored, save_fused, speculators_format
from outdraft.models.files.foreign_heads import read_config, tensor_names
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetFacts, TargetPort
from outdraft.options.errors import CapabilityError
from outdraft.options.read_file import load_json
from outdraft.weights.safetensors import SINGLE, read_tensors, save_tensors

MODEL_TYPE = "eagle3"
KIND = FusedKind(what="EAGLE-3 network", model_type=MODEL_TYPE, architecture="Eagle3DraftModel")


def save_eagle3(net: FusedNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors, in speculators' layout. `dtype`: of the numbers; their own by default."""
    save_fused(net, KIND, entries_of(net.config), directory, dtype)


def read_eagle3(directory: Path, num_layers: int) -> FusedFiles:
    """An EAGLE-3 network in any spelling. `num_layers`: the target's, for taps that no file names.

    Raises `ModelLoadError` for what is no EAGLE-3 network, is damaged, or contradicts itself.
    """
    return read_fused(directory, num_layers, KIND)


def load_eagle3(
    directory: Path, facts: TargetFacts, dtype: torch.dtype | None = None, *, lent: Lent | None = None
) -> FusedNet:
    """The network in `directory`, in whatever spelling, for this target; in the target's type unless `dtype` is given.

    lent: the target's norm and head; without them a network that has no head of its own cannot draft.

    Raises `ModelLoadError` for damaged or contradictory files, `CapabilityError` for another target's network.
    """
    files = read_eagle3(directory, facts.num_layers)
    return fill_fused(
        files,
        KIND,
        facts,
        entries_of(files.config),
        lambda device, vocab: FusedNet(files.config, dtype or facts.dtype, device, vocab, lent),
        directory,
    )


def _is_original(directory: Path) -> bool:
    told = read_config(directory)
    named = "speculators_model_type" not in told and (
        "draft_vocab_size" in told or ORIGINAL in str(told.get("architectures"))
    )
    return named and MASK not in tensor_names(directory)


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


FORMATS: tuple[HeadFormat[FusedNet, Decoder | TargetPort, Decoder], ...] = (
    speculators_format(
        KIND,
        load_eagle3,
        save_eagle3,
        summary="speculators' EAGLE-3 and 3.1, which is ours too",
        served={"outdraft": served_here("eagle3"), "vllm": "vllm serve {out}"},
    ),
    HeadFormat(
        name="eagle",
        summary="the original EAGLE-3: midlayer.*",
        matches=_is_original,
        read=partial(read_stored, KIND, load_eagle3),
        write=_write_original,
        served={"sglang": served_by_sglang("EAGLE3", 3)},
    ),
)
