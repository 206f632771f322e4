"""A tokenizer may have no token without a row in the model, unless nothing writes it; said before weights are read."""

import json
import logging
from pathlib import Path
from shutil import copyfile

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models

from outdraft import LLM
from outdraft.models.files.load import save_model
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config

ROWS = 20


def write_tokenizer(directory, words=ROWS, extra=(), special=(), **config):
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(name) for name in extra])
    tokenizer.add_special_tokens([AddedToken(name) for name in special])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture
def directory(tmp_path):
    """A model of 20 rows whose weights cannot be read."""
    save_model(random_decoder(tiny_config(vocab=ROWS), dtype=torch.float32), tmp_path)
    return tmp_path


def fails(directory, *words):
    (directory / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelLoadError) as caught:
        LLM(directory, drafter="none")
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (dict(words=ROWS + 3), ("20 embeddings", "(3, the first is 'w20')", "tokenizer that belongs")),
        (dict(extra=["<start>"], bos_token="<start>"), ("(1, the first is '<start>')",)),
        (dict(special=["<turn>", "<x>"], chat_template="{{ '<turn>' }}"), ("(1, the first is '<turn>')",)),
    ],
)
def test_tokens_without_a_row_are_one_error_before_weights_are_read(made, words, directory):
    write_tokenizer(directory, **made)
    fails(directory, *words)


def test_the_rows_of_a_wrapper_are_those_of_its_text(directory):
    text = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({"vocab_size": 99, "text_config": text}))
    write_tokenizer(directory, words=ROWS + 1)
    fails(directory, "the model has 20 embeddings", "w20")


def test_added_tokens_that_nothing_writes_are_noted(directory, caplog):
    write_tokenizer(directory, special=["<image>"], extra=["<sound>"], chat_template="{{ messages }}")
    with caplog.at_level(logging.INFO, "outdraft"):
        llm = LLM(directory, drafter="none")
    assert "<image>" in caplog.text and "<sound>" in caplog.text and "w19" not in caplog.text
    assert llm.encode("w19") == (19,)


@pytest.mark.parametrize("made", [{}, {"words": ROWS - 2, "special": ["<a>", "<b>"], "bos_token": "<a>"}])
def test_a_tokenizer_that_fits_is_loaded_without_a_word(made, directory, caplog):
    write_tokenizer(directory, **made)
    with caplog.at_level(logging.INFO, "outdraft"):
        assert load_codec(directory).vocab_size == ROWS
    assert not caplog.records


def test_a_tokenizer_beside_a_gguf_file_is_checked_too(tmp_path):
    pytest.importorskip("gguf")
    copyfile(Path(__file__).parent / "converted" / "llama.gguf", tmp_path / "m.gguf")  # of 64 rows
    write_tokenizer(tmp_path, words=65)
    with pytest.raises(ModelLoadError, match=r"the model has 64 embeddings.*'w64'"):
        LLM(tmp_path / "m.gguf", drafter="none")
