"""A draft model on disk: a model directory like any other, which needs the target's tokenizer beside it elsewhere."""

from pathlib import Path

import torch

from outdraft.core.head_format import HeadFormat, served_by_sglang, served_by_vllm, served_here
from outdraft.models.files.foreign_heads import read_config, tensor_names
from outdraft.models.files.load import find_architecture, load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort, facts_of
from outdraft.models.target.tables import tables_of
from outdraft.options.errors import ModelLoadError
from outdraft.weights.hub import resolve
from outdraft.weights.text_files import copy_text_files

_LAYERS = ("model.layers.", "transformer.h.", "h.0.", "gpt_neox.layers.")  # of the architectures that load


def _is_model(directory: Path) -> bool:
    try:
        find_architecture(dict(read_config(directory)))
    except ModelLoadError:
        return False
    names = tensor_names(directory)  # a head may say model_type: llama too
    return any(name.startswith(_LAYERS) for name in names) and "model.fc.weight" not in names


def _read(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> Decoder:
    return load_model(directory, dtype, str(facts_of(target).device), tables_of(target))


def _write(draft: Decoder, target: Decoder, target_name: str, directory: Path) -> None:
    """The model, and the target's tokenizer: others want it beside the draft."""
    save_model(draft, directory)
    copy_text_files(resolve(target_name), directory, defaults=False)


FORMATS: tuple[HeadFormat[Decoder, Decoder | TargetPort, Decoder], ...] = (
    HeadFormat(
        name="huggingface",
        summary="a model directory: config.json, model.safetensors, tokenizer",
        matches=_is_model,
        read=_read,
        write=_write,
        served={
            "outdraft": served_here("draft_model"),
            "vllm": served_by_vllm("draft_model", 4),
            "sglang": served_by_sglang("STANDALONE", 4),
        },
    ),
)
