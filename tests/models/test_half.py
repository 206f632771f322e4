"""Weights of float16 are computed in bfloat16 by the kernels, unless float16 is asked for; what else is advised."""

import logging

import pytest
import torch

from outdraft import LLM
from outdraft.engine.naming import default
from outdraft.kernels.library import library
from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake.streamed import load_streamed
from outdraft.models.target.open_network import load_network, open_model
from outdraft.testing.tiny import random_decoder, tiny_config

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
WIDE = dict(layers=2, hidden=64, inner=96, heads=2, kv_heads=1)


@pytest.fixture
def stored(tmp_path):
    """A directory of float16, of numbers that bfloat16 has not."""
    save_model(random_decoder(tiny_config(**WIDE), dtype=torch.float32, exact=False), tmp_path / "m", torch.float16)
    return tmp_path / "m"


def test_the_kernels_compute_it_in_bfloat16_and_a_line_says_so(stored, caplog):
    network = load_network(stored)
    assert isinstance(network, NativeDecoder) and network.dtype == torch.bfloat16
    assert len(caplog.messages) == 1 and "m is stored as float16 and computed as bfloat16" in caplog.text
    wanted = load_model(stored).embedding
    found = network.embed(ids := torch.arange(len(wanted)), ids)
    assert wanted.dtype == torch.float16 and torch.equal(found, wanted.bfloat16().float())
    assert not torch.equal(found, wanted.float())


def test_a_type_that_is_asked_for_is_kept(stored, caplog):
    kept = load_network(stored, "float16")
    assert isinstance(kept, Decoder) and kept.dtype == torch.float16
    assert load_network(stored, "bfloat16").dtype == torch.bfloat16 and not caplog.messages


def test_widths_that_the_kernels_do_not_know_stay_float16(tmp_path, caplog):
    save_model(random_decoder(tiny_config(), dtype=torch.float32, exact=False), tmp_path, torch.float16)
    assert load_network(tmp_path).dtype == torch.float16 and not caplog.messages


def test_a_streamed_model_is_converted_too(stored):
    opened = open_model(stored, None, torch.device("cpu"), streams=True)
    assert opened.stored.dtype == load_streamed(opened.pieces, 1 << 30).dtype == torch.bfloat16


def test_a_gguf_file_of_float16_is_converted_too(tmp_path, caplog):
    gguf = pytest.importorskip("gguf")
    from weights.gguf_files import write_gguf

    decoder = random_decoder(tiny_config(**WIDE), dtype=torch.float16, exact=False)
    write_gguf(decoder, tmp_path / "m.gguf", gguf.GGMLQuantizationType.F16)
    assert load_network(tmp_path / "m.gguf").dtype == torch.bfloat16 and "stored as float16" in caplog.text
    assert load_network(tmp_path / "m.gguf", "float16").dtype == torch.float16


@pytest.mark.parametrize(("widths", "advised"), [(WIDE, True), ({}, False)], ids=["known", "unknown"])
def test_bfloat16_is_advised_where_the_kernels_know_the_widths(widths, advised, tmp_path, caplog):
    save_model(random_decoder(tiny_config(**widths), dtype=torch.float32, exact=False), tmp_path)
    default._tell.cache_clear()
    with caplog.at_level(logging.INFO, "outdraft.notes"):
        LLM(str(tmp_path), guard=0)
    assert "by default decoding is plain" in caplog.text
    assert ("take dtype='bfloat16' (--dtype bfloat16)" in caplog.text) == advised
