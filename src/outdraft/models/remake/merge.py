"""A model with a LoRA adapter of PEFT's merged into its weights: a changed model of its own, which runs as any other.

Data in: a model, and an adapter that was trained on it; data out: a model directory. Each matrix is summed in float32
and rounded once, to the type that the model is stored in.
"""

from pathlib import Path

import torch

from outdraft.models.families.shared.naming import stored_shapes
from outdraft.models.files.load import fill_decoder, open_weights, require_filled, save_model
from outdraft.models.files.peft_lora import PeftLora, linear_entries, open_lora
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.lora import require_plain
from outdraft.weights.hub import resolve
from outdraft.weights.text_files import copy_text_files


def merge_lora(model: str, lora: str, out: Path) -> PeftLora:
    """Write `model` with adapter `lora` to `out`: both a directory or a hub name. Texts are read as the adapter's
    directory says, where it has a tokenizer, else as the model's does.

    Raises `ModelLoadError` for an adapter of another kind or model, `CapabilityError` for rounded weights.
    """
    source, place = resolve(model), resolve(lora, also=["adapter_model.bin"])
    adapter, stored = open_lora(place), open_weights(source)
    require_plain(stored.config)
    target = fill_decoder(stored, torch.device("cpu"))
    add_lora(target, adapter)
    require_filled(target.named_parameters(), place)
    save_model(target, out)
    has_tokenizer = (place / "tokenizer.json").is_file()
    copy_text_files(place if has_tokenizer else source, out)
    return adapter


@torch.no_grad()
def add_lora(target: Decoder, adapter: PeftLora) -> None:
    """Change the target's matrices in place. Raises `ModelLoadError` for an adapter that does not fit it."""
    known = set[str]()
    for name, entry in linear_entries(target.config).items():
        weight = target.get_submodule(name).get_parameter("weight")
        modules = [one.removesuffix(".weight") for one in entry.theirs]
        known.update(modules)
        if adapter.modules.keys() & modules:
            shapes = zip(modules, stored_shapes(entry, tuple(weight.shape)), strict=True)
            changes = [
                adapter.pair(*one).change() if one[0] in adapter.modules else torch.zeros(one[1]) for one in shapes
            ]
            weight.copy_(weight + entry.join(changes))  # in float32, as the changes are
    adapter.refuse_others(known)
