"""GGUF files that we write, read back by our own reader, which is tested against the format itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from outdraft import LLM
from outdraft.codecs.token_bytes import byte_of_character
from outdraft.core.errors import ModelLoadError
from outdraft.models.gguf_write import write_gguf
from outdraft.models.load import load_model, save_model, tensors_of
from outdraft.nn.rope import RopeConfig
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.gguf import GgufFile

VOCAB = 257


def model_directory(place: Path, architecture: str = "llama", dtype=torch.bfloat16, **changes) -> Path:
    config = replace(tiny_config(architecture, vocab=VOCAB, tie=changes.pop("tie", False)), **changes)
    save_model(random_decoder(config, dtype=dtype), place)
    characters = {character: byte for character, byte in byte_of_character().items()}
    tokenizer = Tokenizer(models.BPE(vocab=characters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=False)])
    tokenizer.save(str(place / "tokenizer.json"))
    return place


@pytest.mark.parametrize(
    "architecture, changes",
    [
        ("llama", {"tie": True}),
        ("llama", {"rope": RopeConfig(dim=8, theta=500000.0, kind="llama3", factor=8.0, original_max_len=8192)}),
        ("llama", {"rope": RopeConfig(dim=8, kind="yarn", factor=4.0, original_max_len=16, beta_fast=8.0)}),
        ("qwen2", {}),
        ("qwen3", {}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_not_a_bit_changes(architecture: str, changes: dict, dtype: torch.dtype, tmp_path: Path):
    directory = model_directory(tmp_path / "model", architecture, dtype, windows=(), **changes)
    write_gguf(directory, tmp_path / "model.gguf")
    ours, theirs = load_model(directory), load_model(tmp_path / "model.gguf")
    assert theirs.config.rope == ours.config.rope and theirs.config.tie_embeddings == ours.config.tie_embeddings
    for name, tensor in tensors_of(ours).items():
        assert torch.equal(tensor.float(), tensors_of(theirs)[name].float()), name


def test_rotary_options_without_a_place_are_refused(tmp_path: Path):
    rope = RopeConfig(dim=8, kind="yarn", factor=4.0, original_max_len=16, attention_factor=0.8)
    directory = model_directory(tmp_path / "model", windows=(), rope=rope)
    with pytest.raises(ModelLoadError, match="attention_factor"):
        write_gguf(directory, tmp_path / "model.gguf")


def test_kinds_and_vocabulary(tmp_path: Path):
    directory = model_directory(tmp_path / "model", windows=())
    write_gguf(directory, tmp_path / "model.gguf")
    file = GgufFile(tmp_path / "model.gguf")
    assert file.kind("blk.0.attn_q.weight") == "BF16" and file.kind("output_norm.weight") == "F32"
    assert file.get("tokenizer.ggml.token_type")[256] == 3 and len(file.get("tokenizer.ggml.tokens")) == VOCAB
    codec = LLM(tmp_path / "model.gguf").codec
    assert codec is not None and codec.encode("abc", add_special=False) == LLM(directory).codec.encode("abc")


@pytest.mark.parametrize(
    "architecture, spoil, says",
    [
        ("gpt2", {}, "model_type='gpt2' cannot be written"),
        ("llama", {"model": {"type": "Unigram"}}, "no byte-level BPE"),
    ],
)
def test_what_is_refused(architecture: str, spoil: dict, says: str, tmp_path: Path):
    directory = model_directory(tmp_path / "model", architecture, windows=())
    tokenizer = directory / "tokenizer.json"
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()) | spoil))
    with pytest.raises(ModelLoadError, match=says):
        write_gguf(directory, tmp_path / "model.gguf")
