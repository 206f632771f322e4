"""Models whose weights stay the blocks of their GGUF file: every type, and several types in one map of ours."""

import json
import os
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from nn.test_quant_blocks import random_rows
from weights.gguf_files import finish, llama_cpp_tensors, write_gguf

from outdraft import LLM, SamplingParams
from outdraft.kernels.decoder import grid
from outdraft.kernels.decoder.matrix import PackedMatrix
from outdraft.kernels.library import library
from outdraft.models.files import load
from outdraft.models.files.gguf import GgufModel
from outdraft.models.files.load import open_weights, save_model
from outdraft.models.networks import packable
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake import packed_cache
from outdraft.models.remake.cut import cut_decoder
from outdraft.models.remake.packed_cache import packed_bytes, packed_file
from outdraft.models.remake.pieces import Pieces
from outdraft.models.target.open_network import load_network
from outdraft.nn.context import CausalContext
from outdraft.nn.linear import Linear
from outdraft.nn.quant.block_linear import BlockEmbedding, BlockLinear, on_our_grid
from outdraft.nn.quant.blocks import BLOCKS, dequantize
from outdraft.nn.rope import RopeConfig
from outdraft.options.errors import ModelLoadError
from outdraft.testing.losslessness import SETTINGS, Auditor
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.training.possible import require_trainable

CONVERTED = Path(__file__).parents[1] / "models/converted"
KINDS = gguf.GGMLQuantizationType
K_M = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q6_K", "attn_k": "Q5_K", "ffn_up": "IQ4_XS"}
WIDTHS = {"Q4_0": 0.01, "Q4_1": 0.01, "Q5_0": 0.005, "Q5_1": 0.005}  # of float16 scales: weights of about 0.05
FIRST = {"MXFP4": (0, 1, 122), "NVFP4": (0, 4, 8)}  # bytes that are scales, and what they are


def model_of(architecture="llama", tie=True, **changes):
    sizes = {"hidden_size": 256, "num_heads": 8, "num_kv_heads": 4, "head_dim": 32, "intermediate_size": 256}
    config = replace(tiny_config(architecture, tie=tie), **sizes, rope=RopeConfig(dim=32), windows=())
    return random_decoder(replace(config, **changes), dtype=torch.float32, exact=False)


def write_blocks(path: Path, kind_of, model=None, beside=None, **raw) -> Path:
    """A model of random blocks, of the type `kind_of(part)` says; parts of other types are rounded by the package.
    `beside`: tensors to add."""
    made = {}
    for seed, (name, array) in enumerate(llama_cpp_tensors(model := model or model_of()).items()):
        kind = kind_of(name.split(".")[-2])
        if array.ndim < 2:
            continue
        rows = gguf.quants.quantize(array, KINDS[kind]) if kind not in BLOCKS else None
        if rows is None:
            rows = random_rows(kind, *array.shape, seed, WIDTHS.get(kind, 0.0005))
            start, stop, scale = FIRST.get(kind, (0, 0, 0))
            rows.reshape(-1, BLOCKS[kind].size)[:, start:stop] = scale
        made[name] = (rows, KINDS[kind])
    return write_gguf(model, path, blocks=made | raw, **(beside or {}))


def k_m(part: str) -> str:
    return K_M.get(part, "Q4_K")


def load_model(path, dtype=None):
    """As an engine reads it: blocks stay."""
    decoder = load.fill_decoder(open_weights(path, dtype, blocks=True), torch.device("cpu"))
    decoder.set_exact(True)
    return decoder


def test_what_is_trained_or_cut_is_floats(tmp_path):
    path = write_blocks(tmp_path / "m.gguf", k_m)
    floats, kept = load.load_model(path), load_model(path)
    require_trainable(floats, "m.gguf")
    assert cut_decoder(floats, (0,)).config.num_layers == 1
    assert torch.equal(floats.layers[1].qkv.weight, kept.layers[1].qkv.matrix())
    assert load.load_model(write_blocks(tmp_path / "q8.gguf", lambda part: "Q8_0")).config.quant is not None


def test_a_factor_beside_a_tensor_is_a_part_of_its_weights(tmp_path, whole):
    """NVFP4 files have one for each tensor (`.scale`), and one for its activations, which are not rounded here."""
    factors = {"attn_q.scale": 0.5, "attn_q.input_scale": 3.0, "ffn_down.scale": 0.3}
    beside = {f"blk.1.{name}": np.array([one], np.float32) for name, one in factors.items()}
    path = write_blocks(tmp_path / "m.gguf", lambda part: "NVFP4", beside=beside)
    kept, twin = load_model(path, dtype="float32"), whole(load_model, path, dtype="float32")
    plain = load_model(write_blocks(tmp_path / "plain.gguf", lambda part: "NVFP4"), dtype="float32")
    assert kept.config.quant.factors_of("layers.1.qkv") == (0.5, 1.0, 1.0)
    assert not kept.config.quant.factors_of("layers.0.qkv")
    assert torch.equal(kept.layers[1].qkv.matrix()[:256], 0.5 * plain.layers[1].qkv.matrix()[:256])
    assert torch.equal(kept.layers[1].qkv.matrix()[256:], plain.layers[1].qkv.matrix()[256:])
    assert torch.equal(logits_of(kept), logits_of(twin)) and not torch.equal(logits_of(kept), logits_of(plain))
    assert greedy(LLM(str(path), dtype="float32")) == greedy(whole(LLM, str(path), dtype="float32"))
    stray = write_blocks(tmp_path / "stray.gguf", k_m, beside={"blk.1.attn_qkv.scale": np.ones(1, np.float32)})
    with pytest.raises(ModelLoadError, match="attn_qkv"):
        load_model(stray)


@pytest.fixture
def whole(monkeypatch):
    """The same model, its blocks made floats by the `gguf` package."""

    def made_whole(load, *args, **options):
        with monkeypatch.context() as patch:
            patch.setattr(GgufModel, "keep_integers", lambda model, table: None)
            return load(*args, **options)

    return made_whole


@torch.no_grad()
def logits_of(model):
    ids = torch.randint(61, (20,), generator=torch.Generator().manual_seed(0))
    return model(ids, torch.arange(20), CausalContext(1, 20))


def greedy(llm):
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    return llm.generate({"prompt_token_ids": [3, 1, 4, 1, 5]}, params).token_ids


@pytest.mark.parametrize("kind", [*BLOCKS, "mixed"])
def test_every_type_computes_what_its_floats_compute(kind, tmp_path, whole):
    path = write_blocks(tmp_path / "m.gguf", k_m if kind == "mixed" else lambda part: kind)
    kept, twin = load_model(path, dtype="float32"), whole(load_model, path, dtype="float32")
    assert (
        kept.config.variant
        == twin.config.variant
        == (
            "gguf-" + "-".join(sorted({"q4_k", *map(str.lower, K_M.values())}))
            if kind == "mixed"
            else f"gguf-{kind.lower()}"
        )
    )
    assert torch.equal(logits_of(kept), logits_of(twin)) and logits_of(kept).std() > 1e-3
    assert kept.num_parameters == twin.num_parameters
    assert greedy(LLM(str(path), dtype="float32")) == greedy(whole(LLM, str(path), dtype="float32"))


def test_a_map_of_ours_has_parts_of_several_types(tmp_path):
    decoder = load_model(write_blocks(tmp_path / "m.gguf", k_m))
    layer = decoder.layers[1]
    assert layer.qkv.blocks.parts == (("Q4_K", 256), ("Q5_K", 128), ("Q6_K", 128))
    assert layer.up.blocks.parts == (("Q4_K", 256), ("IQ4_XS", 256)) and layer.qkv.shape == (512, 256)
    assert isinstance(decoder.embedding, BlockEmbedding) and isinstance(decoder.lm_head, BlockLinear)
    assert decoder.lm_head.blocks is decoder.embedding.blocks and decoder.dtype == torch.bfloat16
    assert [rows.shape for _, rows in layer.qkv.blocks.held()] == [(256, 144), (128, 176), (128, 210)]
    ids = torch.tensor([7, 0, 7])
    assert torch.equal(decoder.embed(ids, ids), decoder.embedding.detach()[ids])
    with pytest.raises(IndexError):
        decoder.embed(torch.tensor([-1]), ids)


def test_an_untied_head_and_other_families(tmp_path, whole):
    path = write_blocks(tmp_path / "m.gguf", lambda part: K_M.get(part, "Q8_0"), model_of("qwen3", tie=False))
    kept, twin = load_model(path, dtype="float32"), whole(load_model, path, dtype="float32")
    assert kept.lm_head.blocks.parts == (("Q8_0", 61),) and kept.embedding.blocks.parts == (("Q6_K", 61),)
    assert torch.equal(logits_of(kept), logits_of(twin))


@pytest.mark.parametrize("name", sorted(path.stem for path in CONVERTED.glob("*.gguf")))
def test_every_family_keeps_its_blocks(name, tmp_path, whole):
    """The files that llama.cpp's converter made, in Q8_0 where rows are long enough: names, orders of rows."""
    reader = gguf.GGUFReader(CONVERTED / f"{name}.gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", str(reader.get_field("general.architecture").contents()))
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.")):
            writer.add_key_value(field.name, field.contents(), field.types[0], *field.types[1:2])
    for tensor in reader.tensors:
        floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if rounds := len(tensor.shape) == 2 and floats.shape[1] % 32 == 0:
            floats = gguf.quants.quantize(floats, KINDS.Q8_0)
        writer.add_tensor(tensor.name, floats, raw_dtype=KINDS.Q8_0 if rounds else None)
    finish(writer)
    kept = load_model(tmp_path / "m.gguf", dtype="float32")
    twin = whole(load_model, tmp_path / "m.gguf", dtype="float32")
    assert kept.config.quant is not None and twin.config.quant is None
    assert torch.equal(logits_of(kept), logits_of(twin))


@pytest.mark.parametrize("load", [load_model, load_network])
def test_a_file_may_be_shortened_while_its_model_is_used(load, tmp_path):
    path = write_blocks(tmp_path / "m.gguf", k_m)
    model, h, ids = load(path), torch.ones(1, 256), torch.arange(61)
    wanted = model.embed(ids, ids), model.logits(h.to(model.dtype))
    os.truncate(path, 0)
    assert torch.equal(model.embed(ids, ids), wanted[0]) and torch.equal(model.logits(h.to(model.dtype)), wanted[1])


def test_a_directory_keeps_the_blocks(tmp_path):
    decoder = load_model(write_blocks(tmp_path / "m.gguf", k_m), dtype="float32")
    save_model(decoder, tmp_path / "directory")
    again = load_model(tmp_path / "directory", dtype="float32")
    assert again.config == decoder.config and again.layers[0].qkv.blocks.parts == decoder.layers[0].qkv.blocks.parts
    assert torch.equal(logits_of(again), logits_of(decoder))


@pytest.mark.parametrize("lost", ["lm_head", "embedding"])
def test_tied_tables_have_blocks_together(lost, tmp_path):
    save_model(load_model(write_blocks(tmp_path / "m.gguf", k_m)), tmp_path / "directory")
    told = tmp_path / "directory/config.json"
    config = json.loads(told.read_text())
    del config["quantization_config"]["blocks"][lost]
    told.write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match="one of embedding and lm_head, which are tied"):
        load_model(tmp_path / "directory")


def test_types_that_are_not_kept_are_logged_once_with_their_cost(tmp_path, caplog):
    model, file = model_of(), tmp_path / "m.gguf"
    load_model(write_blocks(file, k_m, model))
    assert not [record for record in caplog.records if "16-bit floats" in record.getMessage()]
    decoder = load_model(write_blocks(file, lambda part: "TQ2_0" if part == "attn_k" else "Q8_0", model))
    assert isinstance(decoder.layers[0].qkv, Linear) and isinstance(decoder.layers[0].out, BlockLinear)
    (told,) = [record.getMessage() for record in caplog.records if "16-bit floats" in record.getMessage()]
    layers, stored = model.config.num_layers, 384 * 256 * 34 // 32 + 128 * 66
    for words in (f"{3 * layers} weights (Q8_0, TQ2_0)", "a Q4_K_M or Q8_0 file", "outdraft quantize"):
        assert words in told
    assert f"{layers * 2 * 512 * 256 / 1e6:.1f} MB of memory instead of {layers * stored / 1e6:.1f}" in told


def test_a_part_of_another_height_is_an_error(tmp_path):
    rows = (random_rows("Q4_K", 64, 256), KINDS.Q4_K)
    with pytest.raises(
        ModelLoadError, match=r"k_proj\.weight.* has shape \(64, 256\), config.json asks for \(128, 256"
    ):
        load_model(write_blocks(tmp_path / "m.gguf", k_m, **{"blk.1.attn_k.weight": rows}))
    rows = (random_rows("Q4_K", 64, 256), KINDS.Q4_K)
    with pytest.raises(
        ModelLoadError, match=r"o_proj\.blocks.* has shape \(64, 144\), config.json asks for \(256, 144"
    ):
        load_model(write_blocks(tmp_path / "m.gguf", k_m, **{"blk.1.attn_output.weight": rows}))


@pytest.mark.parametrize("drafter", ["ngram", "draft_model", "swift"])
def test_drafters_over_blocks_change_nothing(drafter, tmp_path):
    """Drafters without a network, with one over blocks, and over some of the target's own layers."""
    path = str(write_blocks(tmp_path / "m.gguf", k_m))
    options = {"draft_model": {"draft_model": path}}.get(drafter, {})
    plain = LLM(path, dtype="float32")
    spec = plain.with_drafter(drafter, policy="fixed", **options)
    prompts = [[i, 7, i, 7, i, 7] for i in range(1, 9)]
    auditor = Auditor(plain=plain, prompts=prompts, distribution_prompts=prompts[:1], max_tokens=24)
    for setting in SETTINGS[:2]:
        check = auditor.identity(spec, setting)
        assert check.passed and check.conclusive, check.detail
    if drafter == "draft_model":
        (weights,) = spec.engine.parts.drafter.traits.weights
        assert (weights.bits, weights.variant) == (4, "gguf-iq4_xs-q4_k-q5_k-q6_k")


# -- on the native kernels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_blocks_on_our_grid(kind):
    raw = torch.from_numpy(random_rows(kind, 24, 256))
    values, scales = on_our_grid([(kind, raw[:10]), (kind, raw[10:])])
    bits = 8 if kind == "Q8_0" else 4
    assert scales.shape == (24, 8) and values.shape == (24, 256 * bits // 8)
    assert torch.equal(grid.times_scales(grid.unpack(values, bits), scales), dequantize(raw, kind))


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_both_layouts_of_our_grid_give_the_same_bits(kind, monkeypatch):
    raw = torch.from_numpy(random_rows(kind, 80, 256))
    x = torch.randn(13, 256, generator=torch.Generator().manual_seed(5))
    packed = {}
    for prefers in (True, False):
        monkeypatch.setattr(packable, "prefers_blocks", lambda prefers=prefers: prefers)
        weight = packable.weight_of_blocks([(kind, raw)], None, ())
        packed[type(weight).__name__] = PackedMatrix(weight)
    assert set(packed) == {"BlockWeight", "Weight"}
    for count in (1, 4, 13):
        first, second = (one.multiply(x[:count]) for one in packed.values())
        assert torch.equal(first, second)


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "IQ4_XS", "mixed"])
def test_the_native_kernels(kind, tmp_path, whole, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packed_cache, "SMALLEST", 0)
    path = write_blocks(tmp_path / "m.gguf", k_m if kind == "mixed" else lambda part: kind)
    made, found = load_network(path), load_network(path)
    pieces = Pieces(stored=open_weights(path, blocks=True))
    inside, twin = pieces.pack(), whole(load_network, path)
    assert isinstance(twin, NativeDecoder) and pieces.num_parameters == twin.num_parameters
    h = torch.randn(5, 256, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([7, 0, 60])
    apart = NativeDecoder(load_model(path, dtype="bfloat16"))
    assert isinstance(apart.embedding, BlockEmbedding) and pieces.is_tied
    for network in (made, found, inside, apart):
        assert isinstance(network, NativeDecoder) and (network.embedding is None) == (network is not apart)
        assert torch.equal(network.embed(ids, ids), twin.embed(ids, ids))
        assert torch.equal(network.logits(h), inside.logits(h)) and network.pass_bytes == inside.pass_bytes
    off = (twin.logits(h) - inside.logits(h)).abs().mean()  # activations are bytes there
    assert off < 0.02 * twin.logits(h).abs().mean()
    assert inside.pass_bytes < twin.pass_bytes * {"Q8_0": 0.6, "mixed": 0.45}.get(kind, 0.35)
    size = packed_file(pieces).path.stat().st_size
    assert 0.6 * size < packed_bytes(pieces) < 1.1 * size


@pytest.mark.parametrize("kind", [kind for kind, block in BLOCKS.items() if block.halves])
@pytest.mark.parametrize("load", [load_model, load_network])
def test_a_scale_that_is_no_number_is_refused(kind, load, tmp_path):
    path = write_blocks(tmp_path / "m.gguf", lambda part: kind)
    tensor = next(one for one in gguf.GGUFReader(path).tensors if "ffn_down" in one.name)
    at = tensor.data_offset + 5 * BLOCKS[kind].size + BLOCKS[kind].halves[-1]
    data = bytearray(path.read_bytes())
    data[at : at + 2] = b"\x00\xfc"  # minus infinity
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match=rf"'{tensor.name}' in .*m.gguf has a scale that is no finite number"):
        load(path)
