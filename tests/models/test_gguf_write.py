"""GGUF files that we write, read back by our own reader, which is tested against the format itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from outdraft import LLM
from outdraft.codecs.gguf_cuts import CUTS, pre_tokenizer_of
from outdraft.codecs.gguf_spm import marked
from outdraft.codecs.spelling import byte_of_character
from outdraft.models.files.gguf_write import write_gguf
from outdraft.models.files.load import load_model, save_model, tensors_of
from outdraft.models.files.load_codec import load_codec
from outdraft.nn.rope import RopeConfig
from outdraft.options.errors import ModelLoadError
from outdraft.testing.tiny import random_decoder
from outdraft.weights.gguf import GgufFile
from outdraft.weights.safetensors import SINGLE, read_tensors, save_tensors
from tests.helpers.tiny_families import tiny_config

VOCAB = 260


def model_directory(place: Path, architecture: str = "llama", dtype=torch.bfloat16, **changes) -> Path:
    config = replace(tiny_config(architecture, vocab=VOCAB, tie=changes.pop("tie", False)), **changes)
    save_model(random_decoder(config, dtype=dtype), place)
    characters = {character: byte for character, byte in byte_of_character().items()}
    tokenizer = Tokenizer(models.BPE(vocab=characters | {"ab": 256, "12": 257}, merges=[("a", "b"), ("1", "2")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=False)])
    tokenizer.add_tokens([AddedToken("<x>", normalized=False)])
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


def test_buffers_that_are_no_weights_are_left_out(tmp_path: Path):
    """Llama's first directories hold the rotary frequencies, which every loader computes."""
    directory = model_directory(tmp_path / "model", windows=())
    held = read_tensors(directory / SINGLE)
    save_tensors({**held, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}, directory / SINGLE)
    write_gguf(directory, tmp_path / "model.gguf")
    assert load_model(tmp_path / "model.gguf").config.num_layers == load_model(directory).config.num_layers


GEMMA = dict(score_scale=8**-0.5, embedding_scale=32**0.5, logit_cap=30.0, num_layers=8)


def gemma(place: Path, **changes) -> Path:
    """A tiny Gemma 3 with a window in five layers of six or elsewhere, and a vocabulary as SentencePiece's."""
    every, near = RopeConfig(dim=8, theta=1e6, kind="linear", factor=8.0), RopeConfig(dim=8, theta=300.0)
    windows = changes.pop("windows", tuple(None if i % 6 == 5 else 9 for i in range(8)))
    ropes = tuple(near if window else every for window in windows)
    directory = model_directory(
        place, "gemma3_text", tie=True, **{**GEMMA, "windows": windows, "rope": every, "ropes": ropes, **changes}
    )
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(200)), *"\u2581abcdefgh", "\n"]
    joined = [("a", "b"), ("\u2581", "ab"), ("c", "d"), ("ab", "cd"), ("\n", "\n")]
    vocab = {name: i for i, name in enumerate([*letters, *map("".join, joined)])}
    tokenizer = marked(vocab, joined, unknown="<unk>", leading=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in letters[:3]])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False)])
    tokenizer.save(str(place / "tokenizer.json"))
    settings = {"bos_token": "<s>", "unk_token": "<unk>", "add_bos_token": True, "chat_template": "{{ messages }}"}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


@pytest.mark.parametrize("windows", [(9,) * 5 + (None,) + (9,) * 2, (None, 9) * 4])
def test_gemma_3(windows: tuple, tmp_path: Path):
    directory, path = gemma(tmp_path / "model", windows=windows), tmp_path / "model.gguf"
    write_gguf(directory, path)
    ours, theirs = load_model(directory), load_model(path)
    assert (theirs.config.windows, theirs.config.ropes) == (windows, ours.config.ropes)
    for name, tensor in tensors_of(ours).items():
        assert torch.equal(tensor.float(), tensors_of(theirs)[name].float()), name
    file, codec, wanted = GgufFile(path), load_codec(path), load_codec(directory)
    assert file.get("tokenizer.ggml.model") == "llama" and file.get("tokenizer.chat_template") == "{{ messages }}"
    assert file.get("tokenizer.ggml.token_type")[:4] == [2, 3, 3, 6]
    for text in ("ab abcd\n\n\ncdab h!", "<s>a ab", ""):
        assert codec.encode(text) == wanted.encode(text)
        assert codec.decode(codec.encode(text)) == wanted.decode(wanted.encode(text))


def test_merges_without_an_order_by_token_are_refused(tmp_path: Path):
    directory = gemma(tmp_path / "model")
    described = json.loads((directory / "tokenizer.json").read_text())
    described["model"]["vocab"] |= {"bc": 230, "abc": 231}
    described["model"]["merges"] = [["a", "b"], ["b", "c"], ["ab", "c"], ["c", "d"], ["a", "bc"]]
    (directory / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(ModelLoadError, match="an order that no scores give"):
        write_gguf(directory, tmp_path / "model.gguf")


def test_what_a_file_would_say_otherwise_is_refused(tmp_path: Path):
    directory = gemma(tmp_path / "model", score_scale=0.4)
    with pytest.raises(ModelLoadError, match=r"score_scale of its config\.json cannot be written as GGUF here"):
        write_gguf(directory, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


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
    assert file.get("tokenizer.ggml.token_type")[258:] == [3, 4] and len(file.get("tokenizer.ggml.tokens")) == VOCAB
    codec, wanted = LLM(tmp_path / "model.gguf").codec, LLM(directory).codec
    for text in ("abc <s>a<x>b 12", ""):
        assert codec is not None and codec.encode(text) == wanted.encode(text)
        assert codec.decode(codec.encode(text)) == wanted.decode(wanted.encode(text))


def change(directory: Path, *, pre: str = "", start: bool = False, **parts) -> None:
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    if pre:
        tokenizer.pre_tokenizer = pre_tokenizer_of(CUTS[pre])
        tokenizer.normalizer = normalizers.NFC() if CUTS[pre].nfc else None
        tokenizer.model.ignore_merges = CUTS[pre].whole
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"bos_token": "<s>", "add_bos_token": start}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    described = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**described, "bos_token_id": 258}))


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "llama-bpe", "dbrx", "smollm", "command-r", "deepseek-v3", "tekken"])
def test_words_are_cut_as_before(pre: str, start: bool, tmp_path: Path):
    directory = model_directory(tmp_path / "model", windows=())
    change(directory, pre=pre, start=start)
    write_gguf(directory, tmp_path / "model.gguf")
    assert GgufFile(tmp_path / "model.gguf").get("tokenizer.ggml.pre") == pre
    text = "It's 12 ab12, e\u0301 <x>\n\n  x"
    codec, wanted = load_codec(tmp_path / "model.gguf"), load_codec(directory)
    assert codec.encode(text) == wanted.encode(text) and (wanted.encode("") == [258]) == start


def test_words_that_are_cut_otherwise_are_not_written(tmp_path: Path):
    directory = model_directory(tmp_path / "model", windows=())
    change(directory, pre="qwen2", normalizer=normalizers.NFKC())
    with pytest.raises(ModelLoadError, match="way of cutting words"):
        write_gguf(directory, tmp_path / "model.gguf")


@pytest.mark.parametrize(
    "architecture, spoil, says",
    [
        ("gpt2", {}, "model_type='gpt2' cannot be written"),
        ("llama", {"pre_tokenizer": {"type": "Whitespace"}}, "no byte-level BPE"),
    ],
)
def test_what_is_refused(architecture: str, spoil: dict, says: str, tmp_path: Path):
    directory = model_directory(tmp_path / "model", architecture, windows=())
    tokenizer = directory / "tokenizer.json"
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()) | spoil))
    with pytest.raises(ModelLoadError, match=says):
        write_gguf(directory, tmp_path / "model.gguf")
