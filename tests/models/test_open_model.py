"""A model is opened once: what its files say is known before a weight is read, and is not asked for again."""

import json
import os

import pytest
import torch

from outdraft import LLM
from outdraft.kernels.library import library
from outdraft.models.files.load import save_model
from outdraft.models.target.open_network import load_network, open_model, read_network
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config

CPU = torch.device("cpu")
WIDE = dict(layers=2, hidden=64, inner=96, heads=2, kv_heads=1)
NAMES = [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.skipif(library() is None, reason="no kernels"))]


def saved(place, dtype):
    save_model(random_decoder(tiny_config(**WIDE), dtype=dtype, exact=False), place)
    return place


@pytest.mark.parametrize("dtype", NAMES)
def test_weights_alone_are_read_of_an_opened_model(tmp_path, dtype):
    place = saved(tmp_path, dtype)
    whole, opened = load_network(place), open_model(place, None, CPU)
    assert (opened.pieces is None) == (dtype == torch.float32) and opened.stored.config == whole.config
    (place / "config.json").unlink()
    read = read_network(opened, exact=True, rounding=None)
    assert type(read) is type(whole) and torch.equal(read.embedding, whole.embedding)
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        open_model(place, None, CPU)


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
def test_another_shape_shows_when_it_is_opened(tmp_path):
    file = saved(tmp_path, torch.bfloat16) / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "intermediate_size": 128}))
    with pytest.raises(ModelLoadError, match=r"has shape .* asks for"):
        open_model(tmp_path, None, CPU)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"guard": -1}, "guard=-1"),
        ({"max_model_len": 0}, "max_model_len=0"),
        ({"model_impl": "vllm"}, "model_impl='vllm'"),
        ({"precision": "half"}, "precision='half'"),
        ({"precision": "mixed", "weights_memory": "1MiB"}, "leave one out"),
        ({"precision_options": {"margin": 0.1}}, "belong to precision='elastic'"),
        ({"codec": "bytes"}, "must be a Codec"),
    ],
)
def test_words_are_refused_before_files_are_opened(tmp_path, words, named):
    os.mkfifo(tmp_path / "config.json")  # no model, and an error of its own
    with pytest.raises(ConfigError, match=named):
        LLM(tmp_path, drafter="none", **words)


def test_a_model_type_that_is_no_word_is_named(tmp_path):
    file = saved(tmp_path, torch.float32) / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": ["llama"]}))
    with pytest.raises(ModelLoadError, match=r"model_type=\['llama'\] is not supported"):
        open_model(tmp_path, None, CPU)
