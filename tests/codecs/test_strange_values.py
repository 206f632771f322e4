"""Strange values of every key that is read beside a tokenizer: each is used, or refused as an `OutdraftError`."""

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_files import CHANGES, SAMPLING, byte_level

from outdraft.codecs.gguf import ROLES, codec_from_gguf
from outdraft.codecs.text import TextCodec
from outdraft.options.errors import OutdraftError

VALUES: tuple[Any, ...] = (
    None,
    True,
    5,
    -3,
    10**30,
    "",
    "x",
    "\ud800",
    [],
    [[1]],
    ["\ud800"],
    {"a": [1]},
    {"content": 5},
    {"content": "\ud800"},
    {"7": {"content": "<s>"}},
    {"264": {"content": ""}},
    [{"name": [], "template": "x"}],
)
CONFIG = (
    "eos_token",
    "image_token",
    "added_tokens_decoder",
    "additional_special_tokens",
    "extra_special_tokens",
    "model_specific_special_tokens",
    "chat_template",
    "add_bos_token",
    "split_special_tokens",
    "add_prefix_space",
)
SECTIONS = (
    "truncation",
    "padding",
    "added_tokens",
    "normalizer",
    "post_processor",
    "decoder",
    "model",
    "version",
    "zzz",
)
OPTIONS = ("vocab", "merges", "dropout", "unk_token", "type", "continuing_subword_prefix")
GGUF = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["<s>", "a", "b", "ab"],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1],
    "tokenizer.chat_template": "T",
    "tokenizer.chat_templates": ["x"],
    "tokenizer.chat_template.x": "X",
    "tokenizer.ggml.eos_token_ids": [1],
    "tokenizer.ggml.add_bos_token": True,
    **dict.fromkeys(ROLES.values(), 0),
}


def files() -> dict[str, list[dict[str, Any]]]:
    """By the file's name, what it holds."""
    whole = byte_level()
    flags = [{**whole["added_tokens"][0], key: value} for key in ("id", "content", "special") for value in VALUES]
    return {
        "tokenizer_config.json": [{key: value} for key in CONFIG for value in VALUES],
        "special_tokens_map.json": [{key: value} for key in CONFIG[:4] for value in VALUES],
        "added_tokens.json": [{name: value} for name in ("<z>", "\ud800") for value in (264, *VALUES)],
        "chat_template.json": [{"chat_template": value} for value in VALUES],
        "generation_config.json": [{key: one} for key in ("eos_token_id", *SAMPLING, *CHANGES) for one in VALUES],
        "tokenizer.json": [
            *({**whole, key: value} for key in SECTIONS for value in VALUES),
            *({**whole, "model": {**whole["model"], key: value}} for key in OPTIONS for value in VALUES),
            *({**whole, "added_tokens": [token]} for token in flags),
        ],
    }


@pytest.mark.parametrize("name", files())
def test_no_value_of_a_file_is_a_foreign_error(name: str, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_level()))
    for held in files()[name]:
        (tmp_path / name).write_text(json.dumps(held))
        try:
            TextCodec.load(tmp_path).encode("the <s>")
        except OutdraftError:
            continue


@pytest.mark.parametrize("key", GGUF)
def test_no_value_of_a_gguf_key_is_a_foreign_error(key: str):
    for value in VALUES:
        try:
            codec = codec_from_gguf({**GGUF, key: value}.get)
        except OutdraftError:
            continue
        assert codec is None or codec.encode("ab")
