"""A tiny model directory with random weights and a byte-like tokenizer, and a way to run the command line."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from outdraft.cli.main import main
from outdraft.codecs.spelling import byte_of_character
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model

VOCAB = 257


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers whose tokens are bytes; 256 starts a text, nothing ends it."""
    directory = tmp_path_factory.mktemp("tiny")
    save_model(tiny_model("llama", vocab=VOCAB, seed=3, dtype=torch.float32), directory)
    names = {character: byte for character, byte in byte_of_character().items()}
    tokenizer = Tokenizer(models.BPE(vocab={**names, "<s>": 256}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=False)])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    return directory


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def outdraft(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run `outdraft WORDS` in this process, with `stdin` as its input."""

    def call(*words: object, stdin: str | bytes = "") -> Ran:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
        try:
            code = main([str(word) for word in words])
        except SystemExit as left:
            code = int(left.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
