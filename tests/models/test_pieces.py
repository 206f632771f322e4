"""Pieces that are read for the kernels hold what a decoder of PyTorch holds, under its names and in its shapes."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from kernels.test_stack import SHAPES, TWINS, make

from outdraft.kernels.library import library
from outdraft.models.files.load import open_weights, save_model, tensors_of
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake.pieces import Pieces, tensors_for
from outdraft.models.remake.quantize import round_decoder
from outdraft.nn.quant import QuantConfig
from outdraft.options.errors import ModelLoadError
from outdraft.testing.tiny import random_decoder

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
ROUNDED = QuantConfig(bits=8, group_size=0, keep=("layers.0.*",), layer_bits=(("*.down", 4),))


@pytest.mark.parametrize("shape", [*SHAPES, *TWINS])
@pytest.mark.parametrize("quant", [None, ROUNDED], ids=["plain", "rounded"])
def test_names_and_shapes_are_a_decoders(shape, quant):
    config = make(shape).config
    config = replace(config, quant=quant or config.quant)
    theirs = tensors_of(Decoder(config, torch.bfloat16, "meta"))
    ours = dict(tensors_for(config, torch.bfloat16))
    shared = {name for name in theirs if config.shared_norm and ".mlp_norm." in name}  # the same norm twice
    assert {name: (one.shape, one.dtype) for name, one in ours.items()} == {
        name: (one.shape, one.dtype) for name, one in theirs.items() if name not in shared
    }


def saved(place, **options):
    decoder = random_decoder(replace(make("llama").config, **options), seed=1, dtype=torch.bfloat16)
    save_model(decoder, place)
    return decoder


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rounding", [None, ROUNDED, QuantConfig(bits=4, keep=())])
def test_what_is_packed_is_what_a_decoder_has(tmp_path, tied, rounding):
    decoder = saved(tmp_path, tie_embeddings=tied)
    packed = Pieces(stored=open_weights(tmp_path), rounding=rounding).pack()
    wanted = NativeDecoder(decoder if rounding is None else round_decoder(decoder, rounding))
    h = torch.randn(3, decoder.config.hidden_size)
    assert torch.equal(packed.logits(h), wanted.logits(h)) and torch.equal(packed.norm(h), wanted.norm(h))
    assert packed.num_parameters == wanted.num_parameters and packed.pass_bytes == wanted.pass_bytes
    ids = torch.arange(decoder.config.vocab_size)
    assert torch.equal(packed.embed(ids, ids), wanted.embed(ids, ids))
    assert (packed.embedding is None) == (tied and rounding is None), "the head has other numbers where it is rounded"


def test_a_stored_head_that_is_rounded_alone_lends_no_rows(tmp_path):
    """Its target is tied, and the embedding kept its floats."""
    decoder = round_decoder(saved(tmp_path / "floats", tie_embeddings=True), QuantConfig(bits=4, keep=()))
    save_model(decoder, tmp_path / "rounded")
    packed, ids = Pieces(stored=open_weights(tmp_path / "rounded")).pack(), torch.arange(decoder.config.vocab_size)
    assert torch.equal(packed.embed(ids, ids), decoder.embed(ids, ids).float())


def test_other_shapes_are_refused_before_anything_is_read(tmp_path):
    saved(tmp_path)
    stored = open_weights(tmp_path)
    wide = replace(stored, config=replace(stored.config, intermediate_size=2 * stored.config.intermediate_size))
    for check in (lambda: Pieces(stored=wide), wide.check_shapes):
        with pytest.raises(ModelLoadError, match=r"has shape .* config\.json asks for"):
            check()
    endless = replace(stored, config=replace(stored.config, vocab_size=2**62))
    for check in (lambda: Pieces(stored=endless), endless.check_shapes):
        with pytest.raises(ModelLoadError, match="asks for an impossible model"):
            check()


def test_no_algebra_is_imported_to_read_weights(tmp_path):
    """PyTorch's `empty_like` of a tensor without memory would bring 25 MB of it."""
    saved(tmp_path / "model")
    script = "import sys; from outdraft.models.target.open_network import load_network; load_network(sys.argv[1])\n"
    script += "assert 'sympy' not in sys.modules"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "model")], check=True, timeout=120)
