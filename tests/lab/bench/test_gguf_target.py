"""The dequantized weights of a GGUF file as a directory: the same numbers, the same ids of a text."""

import pytest
import torch

from lab.bench.peers.gguf_target import whole, whole_draft
from outdraft import zoo
from outdraft.bench.shelf import Shelf
from outdraft.models.files.load import load_model
from outdraft.models.files.load_codec import load_codec
from outdraft.models.remake.gguf_round import write_rounded_gguf
from outdraft.options.errors import ConfigError


def test_a_directory_holds_what_the_file_holds(tmp_path):
    write_rounded_gguf(zoo.path("target"), path := tmp_path / "small.Q8_0.gguf", "q8_0")
    made = whole(path, "float32", Shelf(tmp_path / "shelf"))
    pairs = zip(load_model(path, "float32").parameters(), load_model(made).parameters(), strict=True)
    assert all(one.dtype == two.dtype == torch.float32 and torch.equal(one, two) for one, two in pairs)
    text = "def f(x):\n    return x"
    assert load_codec(made).encode(text) == load_codec(path).encode(text)
    with pytest.raises(ConfigError, match="no draft model beside it"):
        whole_draft(path, Shelf(tmp_path / "shelf"))
