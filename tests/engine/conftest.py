"""A whole tiny model directory: random Llama weights and a byte-level tokenizer."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model


def write_tokenizer(directory: Path) -> None:
    """256 bytes, no merges, and one end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("target")
    save_model(tiny_model("llama", vocab=257, layers=2, hidden=32, seed=3), directory)
    write_tokenizer(directory)
    return directory


@pytest.fixture(scope="session")
def draft_dir(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("draft")
    save_model(tiny_model("llama", vocab=257, layers=1, hidden=32, seed=3), directory)
    return directory
