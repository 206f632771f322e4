"""Write trained weights in the Hugging Face layout, with the tokenizer and its end token beside them."""

import json
import shutil
from pathlib import Path

import torch

from lab.zoo.tokenizer import END_ID
from outdraft.models.files.load import save_model
from outdraft.models.networks.base import Decoder


def export_decoder(decoder: Decoder, directory: Path, tokenizer_dir: Path) -> None:
    """config.json, model.safetensors (bfloat16), tokenizer.json, tokenizer_config.json, generation_config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    save_model(decoder.to(torch.bfloat16), directory)
    copy_tokenizer(tokenizer_dir, directory)
    generation = {"bos_token_id": END_ID, "eos_token_id": END_ID}
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")


def copy_tokenizer(tokenizer_dir: Path, directory: Path) -> None:
    """The two tokenizer files, unchanged."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer_dir / name, directory / name)
