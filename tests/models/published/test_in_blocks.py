"""Checkpoints of other programs whose maps are held in GGUF's blocks: what the files say to the bit, in fewer bytes."""

import json
import logging
import shutil

import gguf
import pytest
import torch
from kernels.test_stack import Feeder
from models.published import writers
from models.published.test_published import logits_of
from models.published.writers import change_tensors, publish

from outdraft.kernels.decoder import grid
from outdraft.kernels.library import library
from outdraft.models.files.load import fill_decoder, load_model, open_weights, save_model
from outdraft.models.files.published.blocks import float_blocks, integer_blocks
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.target.open_network import load_network
from outdraft.nn.linear import Linear
from outdraft.nn.quant import QuantLinear
from outdraft.nn.quant.block_linear import BlockLinear
from outdraft.nn.quant.config import read_quant
from outdraft.options.errors import ModelLoadError
from tests.helpers.tiny_families import tiny_config

CASES = {  # name -> (settings and writer, the blocks of every map)
    "gptq-32-zeros": (writers.gptq(symmetric=False), "Q5_0"),
    "gptq-64-zeros-v2": (writers.gptq(group=64, symmetric=False, minus_one=False), "Q5_0"),
    "gptq-all-zeros": (writers.gptq(group=-1, symmetric=False), "Q5_0"),
    "awq-64": (writers.awq(), "Q5_0"),
    "awq-128": (writers.awq(group=128), "Q5_0"),
    "packed-64-zeros": (writers.packed(group=64, symmetric=False), "Q5_0"),
    "nvfp4": (writers.fours(), "NVFP4"),
    "mxfp4": (writers.fours("mxfp4"), "MXFP4"),
    "nvfp4-modelopt": (writers.modelopt(), "NVFP4"),
}
GRID = {  # what stays on our grid, and what is on neither
    "gptq-32": (writers.gptq(), QuantLinear),
    "gptq-128": (writers.gptq(group=128), QuantLinear),
    "awq-symmetric": (writers.awq(group=32, symmetric=True), QuantLinear),
    "packed-8": (writers.packed(bits=8), QuantLinear),
    "bytes": (writers.bytes_of(), QuantLinear),
    "gptq-16-zeros": (writers.gptq(group=16, symmetric=False), Linear),
    "gptq-by-activation": (writers.gptq(order="by activation", symmetric=False), Linear),
    "gptq-8-zeros": (writers.gptq(bits=8, symmetric=False), Linear),
}
MAPS = ("qkv", "out", "up", "down")
needs_kernels = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")


def load(directory, dtype="float32"):
    """As an engine reads it: blocks stay."""
    decoder = fill_decoder(open_weights(directory, dtype, blocks=True), torch.device("cpu"))
    decoder.set_exact(True)
    return decoder


def maps_of(model):
    return [getattr(layer, name) for layer in model.layers for name in MAPS]


def require_weights_of(twin, found):
    for one, plain in zip(maps_of(found), maps_of(twin), strict=True):
        assert torch.equal(one.dequantize(), plain.weight)


@pytest.mark.parametrize("case", CASES)
def test_blocks_hold_the_weights_bit_for_bit(case, tmp_path):
    made, kind = CASES[case]
    published, plain = publish(tmp_path, *made)
    ours, twin = load(published), load_model(plain)
    assert [{part for part, _ in one.blocks.parts} for one in maps_of(ours)] == [{kind}] * 8
    require_weights_of(twin, ours)
    assert torch.equal(logits_of(ours), logits_of(twin)) and logits_of(ours).std() > 1e-3
    floats = load_model(published)  # what is trained or cut is floats, or on our grid
    assert not any(isinstance(one, BlockLinear) for one in maps_of(floats))
    assert (logits_of(floats) - logits_of(twin)).abs().max() < 1e-5 * logits_of(twin).abs().max()


@pytest.mark.parametrize(("kind", "least"), [("Q4_0", -8), ("Q5_0", -16), ("Q8_0", -128)])
def test_the_gguf_package_reads_the_same_integers(kind, least):
    draw = torch.Generator().manual_seed(0)
    integers = torch.randint(least, -least, (24, 128), generator=draw).to(torch.int8)
    scales = (torch.rand(24, 4, generator=draw) + 0.1).half()
    read = gguf.quants.dequantize(integer_blocks(integers, scales, kind).numpy(), gguf.GGMLQuantizationType[kind])
    assert torch.equal(torch.from_numpy(read), grid.times_scales(integers, scales.float()))


@pytest.mark.parametrize(("kind", "size"), [("MXFP4", 32), ("NVFP4", 16)])
def test_the_gguf_package_reads_the_same_floats(kind, size):
    draw = torch.Generator().manual_seed(0)
    packed = torch.randint(256, (24, 64), dtype=torch.uint8, generator=draw)
    scales = torch.randint(126, (24, 128 // size), dtype=torch.uint8, generator=draw)
    wide = scales.view(torch.float8_e4m3fn).float() if kind == "NVFP4" else (scales.float() - 127).exp2()
    codes = torch.stack((packed & 15, packed >> 4), 2).flatten(1).long()
    values = torch.cat((writers.LEVELS, -writers.LEVELS))[codes]
    read = gguf.quants.dequantize(float_blocks(packed, scales, kind).numpy(), gguf.GGMLQuantizationType[kind])
    assert torch.equal(torch.from_numpy(read), grid.times_scales(values, wide))


@pytest.mark.parametrize("case", GRID)
def test_what_is_as_small_on_our_grid_stays_there(case, tmp_path):
    made, kind = GRID[case]
    published, _ = publish(tmp_path, *made)
    assert all(isinstance(one, kind) for one in maps_of(load(published)))


@needs_kernels
@pytest.mark.parametrize("case", CASES)
def test_the_kernels_multiply_by_them(case, tmp_path):
    """As closely as by integers of our own, with bits of a row that no other row changes, in no more memory."""
    made, kind = CASES[case]
    published, plain = publish(tmp_path, *made)
    exact = logits_of(load_model(plain))
    ours = load_network(published, dtype="bfloat16")
    assert isinstance(ours, NativeDecoder)
    ids = torch.randint(61, (24,), generator=torch.Generator().manual_seed(0))
    together, alone = Feeder(ours).feed(ids), Feeder(ours)
    assert torch.equal(together, torch.cat([alone.feed(one) for one in ids.split(1)]))
    rough = logits_of(load_model(plain, dtype="bfloat16")).float()
    assert (together - exact).abs().mean() < 4 * (rough - exact).abs().mean() < 0.2 * exact.abs().mean()
    bits = {"Q5_0": 5.5, "NVFP4": 4.5, "MXFP4": 4.25}[kind]
    weights = sum(one.weight.numel() for one in maps_of(load_model(plain)))
    floats = 2 * load_model(plain).lm_head.weight.numel() + 2 * 61 * 128  # the head is filled up to 128 rows
    assert ours.stack.num_bytes < bits / 8 * weights * 1.05 + floats


def test_a_map_may_have_parts_of_several_types(tmp_path):
    """Queries and keys on 4 bits, values on 8 and gates with zero points: each part in its own blocks."""
    kinds = {"v_proj": writers.packed(bits=8), "gate_proj": writers.packed(symmetric=False)}
    settings, other = writers.packed()
    settings["config_groups"]["eight"] = kinds["v_proj"][0]["config_groups"]["group_0"]

    def write(stem, weight):
        return kinds.get(stem.rpartition(".")[2], (None, other))[1](stem, weight)

    published, plain = publish(tmp_path, settings, write)
    ours = load(published)
    layer = ours.layers[1]
    assert layer.qkv.blocks.parts == (("Q4_0", 128), ("Q4_0", 64), ("Q8_0", 64))
    assert layer.up.blocks.parts == (("Q5_0", 256), ("Q4_0", 256))
    assert isinstance(layer.out, QuantLinear) and isinstance(layer.down, QuantLinear) and layer.out.bits == 4
    twin = load_model(plain)
    require_weights_of(twin, ours)
    assert torch.equal(logits_of(ours), logits_of(twin))


@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "phi3", "glm4"])
@pytest.mark.parametrize("made", [writers.awq(), writers.fours()], ids=["awq", "nvfp4"])
def test_families_whose_rows_have_another_order(family, made, tmp_path):
    """GPT-NeoX has queries, keys and values head by head, GPT-2 its weights on the side, GLM-4 turns neighbours."""
    config = tiny_config(family, hidden=128, heads=4, kv_heads=2 if family in ("phi3", "glm4") else 4, inner=256)
    ends = ("_proj.weight", "query_key_value.weight", "dense.weight", "h_to_4h.weight", "4h_to_h.weight")
    ends += ("c_attn.weight", "c_fc.weight", "c_proj.weight")
    settings, write = made
    aside = family == "gpt2"

    def turned(stem, weight):
        parts, whole = write(stem, weight.t() if aside else weight)
        return parts, whole.t() if aside else whole

    published, plain = publish(tmp_path, settings, turned, choose=lambda name: name.endswith(ends), config=config)
    ours, twin = load(published), load_model(plain)
    assert all(isinstance(one, BlockLinear) for one in maps_of(ours))
    require_weights_of(twin, ours)


def test_scales_that_float16_does_not_hold_stay_on_our_grid(tmp_path):
    published, _ = publish(tmp_path, *writers.awq())
    name = "model.layers.1.mlp.down_proj.scales"
    change_tensors(published, lambda tensors: tensors.update({name: tensors[name].float()}))
    assert isinstance(load(published).layers[1].down, BlockLinear)  # the same numbers
    change_tensors(published, lambda tensors: tensors[name].mul_(1 + 2**-12))
    ours = load(published)
    assert isinstance(ours.layers[1].down, QuantLinear) and ours.layers[1].down.bits == 8
    assert isinstance(ours.layers[0].down, BlockLinear)


def test_a_head_in_blocks_unties_it(tmp_path):
    config = tiny_config(hidden=128, heads=4, kv_heads=2, inner=256, tie=True)

    rows = torch.randn(61, 128, generator=torch.Generator().manual_seed(1))
    parts, head = writers.fours("mxfp4")[1]("lm_head", rows)
    published, plain = publish(tmp_path, *writers.fours("mxfp4"), config=config)
    change_tensors(published, lambda t: t.update({f"lm_head.{name}": one for name, one in parts.items()}))
    change_tensors(plain, lambda t: t.update({"lm_head.weight": head}))
    ours, twin = load(published), load_model(plain)
    assert isinstance(ours.lm_head, BlockLinear) and not ours.config.tie_embeddings
    assert torch.equal(ours.lm_head.dequantize(), head) and torch.equal(logits_of(ours), logits_of(twin))


def test_factors_are_saved_with_the_blocks(tmp_path):
    published, plain = publish(tmp_path, *writers.fours())
    ours = load(published)
    factors = ours.config.quant.factors_of("layers.1.qkv")
    assert len(set(factors)) == 3 and all(0 < one < 1 for one in factors)
    save_model(ours, tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.config.quant == ours.config.quant and again.config.variant == "compressed-tensors-4"
    require_weights_of(load_model(plain), again)
    told = json.loads((tmp_path / "saved/config.json").read_text())["quantization_config"]
    bad = ([1.0], {"layers.1.qkv": [1.0]}, {"layers.9.qkv": [1.0]}, {"layers.1.out": 1.0}, {"layers.1.out": ["1"]})
    for factors in bad:
        with pytest.raises(ModelLoadError, match="factors"):
            read_quant({**told, "factors": factors})


def test_older_files_of_modelopt_have_their_settings_beside(tmp_path):
    published, plain = publish(tmp_path, *writers.modelopt())
    path = published / "config.json"
    raw = json.loads(path.read_text())
    del raw["quantization_config"]
    path.write_text(json.dumps(raw))
    beside = published / "hf_quant_config.json"
    quantization = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": ["lm_head"],
    }
    beside.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": quantization}))
    require_weights_of(load_model(plain), load(published))
    beside.write_text("{}")
    with pytest.raises(ModelLoadError, match="hf_quant_config"):
        load(published)
    shutil.rmtree(published)


def test_what_is_held_how_is_logged(tmp_path, caplog):
    published, _ = publish(tmp_path, *writers.modelopt())
    with caplog.at_level(logging.INFO, "outdraft"):
        load(published)
    (told,) = [record.getMessage() for record in caplog.records if "modelopt-4" in record.getMessage()]
    assert "8 maps stay on few bits" in told and "activations are not rounded" in told and "not read" not in told


@pytest.mark.parametrize(
    ("made", "edit", "words"),
    [
        (writers.fours(), lambda t, x: t.pop(f"{x}.weight_scale"), ("lacks", "weight_scale")),
        (writers.fours(), lambda t, x: t[f"{x}.weight_global_scale"].zero_(), ("factor", "inf")),
        (writers.modelopt(), lambda t, x: t.pop(f"{x}.weight_scale_2"), ("lacks", "weight_scale_2")),
        (
            writers.fours(),
            lambda t, x: t[f"{x}.weight_scale"].fill_(float("nan")),
            ("weight_scale", "no positive number"),
        ),
        (writers.fours(), lambda t, x: t[f"{x}.weight_scale"].fill_(-1), ("weight_scale", "no positive number")),
        (
            writers.fours("mxfp4"),
            lambda t, x: t[f"{x}.weight_scale"].fill_(255),
            ("weight_scale", "no positive number"),
        ),
        (writers.fours("mxfp4"), lambda t, x: t[f"{x}.weight_scale"].resize_(256, 2), ("weight_scale", "shape")),
        (writers.awq(), lambda t, x: t[f"{x}.scales"].fill_(float("inf")), ("scales", "finite")),
    ],
)
def test_damaged_tensors_are_named(made, edit, words, tmp_path):
    published, _ = publish(tmp_path, *made)
    change_tensors(published, lambda tensors: edit(tensors, "model.layers.1.mlp.up_proj"))
    with pytest.raises(ModelLoadError) as caught:
        load(published)
    for word in words:
        assert word in str(caught.value), str(caught.value)
