"""EAGLE-3 directories that others serve: speculators' layout, which is our own too, and the original one.

    speculators   config.json names its target, so that `vllm serve DIR` finds it; layers.0.*
    eagle         a flat Llama's config.json with draft_vocab_size; midlayer.*, as SGLang and the authors' code read it

Both say the taps in both conventions (`files.py`). A network of several layers has no name in the original.
"""

import json
from pathlib import Path
from typing import Any

import torch

from outdraft.core.head_format import HeadFormat, served_by_sglang, served_here
from outdraft.drafters.eagle3.files import FLAGS, MODEL_TYPE, ORIGINAL, TAPS, read_eagle3, written
from outdraft.drafters.eagle3.net import Eagle3Net, Lent, entries_of, lent_by
from outdraft.drafters.shared.learning.vocab import differences, membership
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.files.foreign_heads import fill, read_config, tensors_of_net, write_directory
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetFacts, TargetPort, facts_of
from outdraft.options.errors import CapabilityError
from outdraft.options.read_file import load_json
from outdraft.weights.safetensors import SINGLE, read_tensors, save_tensors


def save_eagle3(net: Eagle3Net, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors, in speculators' layout. `dtype`: of the numbers; their own by default."""
    tensors = tensors_of_net(net, entries_of(net.config), dtype)
    if net.vocab is not None:
        tensors["d2t"] = differences(net.vocab)
        tensors["t2d"] = membership(net.vocab, net.config.layers.vocab_size)
    write_directory(directory, written(net.config, dtype or net.dtype), tensors)


def load_eagle3(
    directory: Path, facts: TargetFacts, dtype: torch.dtype | None = None, *, lent: Lent | None = None
) -> Eagle3Net:
    """The network in `directory`, in whatever spelling, for this target; in the target's type unless `dtype` is given.

    lent: the target's norm and head; without them a network that has no head of its own cannot draft.

    Raises `ModelLoadError` for damaged or contradictory files, `CapabilityError` for another target's network.
    """
    files = read_eagle3(directory, facts.num_layers)
    files.config.require(facts)
    vocab = files.vocab

    def make(device: torch.device | None) -> Eagle3Net:
        own = vocab if device is None else None
        return Eagle3Net(files.config, dtype or facts.dtype, device or facts.device, own, lent)

    return fill(make, entries_of(files.config), files.tensors, f"EAGLE-3 network in {directory}", beside=("d2t", "t2d"))


def _is_speculators(directory: Path) -> bool:
    return read_config(directory).get("speculators_model_type") == MODEL_TYPE


def _is_original(directory: Path) -> bool:
    told = read_config(directory)
    return "speculators_model_type" not in told and (
        "draft_vocab_size" in told or ORIGINAL in str(told.get("architectures"))
    )


def _read(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> Eagle3Net:
    facts = facts_of(target)
    stored = dtype or read_eagle3(directory, facts.num_layers).tensors["norm.weight"].dtype
    return load_eagle3(directory, facts, stored, lent=lent_by(target))


def _write_speculators(net: Eagle3Net, target: Decoder, target_name: str, directory: Path) -> None:
    """Our own files, which now name their target."""
    save_eagle3(net, directory)
    path = directory / "config.json"
    told = load_json(path)
    architecture = ARCHITECTURES[target.config.architecture].class_name
    told["speculators_config"]["verifier"] = {"name_or_path": target_name, "architectures": [architecture]}
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _write_original(net: Eagle3Net, target: Decoder, target_name: str, directory: Path) -> None:
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


FORMATS: tuple[HeadFormat[Eagle3Net, Decoder | TargetPort, Decoder], ...] = (
    HeadFormat(
        name="speculators",
        summary="speculators' EAGLE-3 and 3.1, which is ours too",
        matches=_is_speculators,
        read=_read,
        write=_write_speculators,
        served={"outdraft": served_here("eagle3"), "vllm": "vllm serve {out}"},
    ),
    HeadFormat(
        name="eagle",
        summary="the original EAGLE-3: midlayer.*",
        matches=_is_original,
        read=_read,
        write=_write_original,
        served={"sglang": served_by_sglang("EAGLE3", 3)},
    ),
)
