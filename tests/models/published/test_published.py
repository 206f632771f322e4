"""Checkpoints of other programs: the logits of the plain model that they stand for, whatever they are held as."""

import json
import logging

import pytest
import torch
from kernels.test_stack import Feeder
from models.published import writers
from models.published.writers import change_tensors, is_map, publish

from outdraft.kernels.library import library
from outdraft.models.files.load import load_model, open_weights
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.target.open_network import load_network
from outdraft.nn.context import CausalContext
from outdraft.nn.quant import QuantConfig, QuantLinear
from outdraft.options.errors import ConfigError, ModelLoadError
from tests.helpers.tiny_families import tiny_config

FOUR, EIGHT = {4}, {8}
CASES = {  # name -> (settings and writer, bits held: none means floats, group size held)
    "gptq-4-32": (writers.gptq(), FOUR, 32),
    "gptq-4-64-v2": (writers.gptq(group=64, minus_one=False), FOUR, 64),
    "gptq-4-128": (writers.gptq(group=128), FOUR, 128),
    "gptq-4-all": (writers.gptq(group=-1), FOUR, 0),
    "gptq-4-all-by-activation": (writers.gptq(group=-1, order="by activation"), FOUR, 0),
    "gptq-4-32-asymmetric": (writers.gptq(symmetric=False), EIGHT, 32),
    "gptq-4-64-asymmetric-v2": (writers.gptq(group=64, symmetric=False, minus_one=False), EIGHT, 64),
    "gptq-4-16": (writers.gptq(group=16), set(), 0),
    "gptq-4-32-by-activation": (writers.gptq(order="by activation"), set(), 0),
    "gptq-4-100": (writers.gptq(group=100), set(), 0),
    "gptq-8-32": (writers.gptq(bits=8), EIGHT, 32),
    "gptq-8-all": (writers.gptq(bits=8, group=-1, index=False), EIGHT, 0),
    "gptq-8-32-asymmetric": (writers.gptq(bits=8, symmetric=False), set(), 0),
    "awq-64": (writers.awq(), EIGHT, 64),
    "awq-128": (writers.awq(group=128), EIGHT, 128),
    "awq-symmetric": (writers.awq(group=32, symmetric=True), FOUR, 32),
    "packed-4-32": (writers.packed(), FOUR, 32),
    "packed-4-all": (writers.packed(group=-1), FOUR, 0),
    "packed-4-64-asymmetric": (writers.packed(group=64, symmetric=False), EIGHT, 64),
    "packed-4-64-asymmetric-unpacked-zeros": (writers.packed(group=64, symmetric=False, signed_zeros=True), EIGHT, 64),
    "packed-4-32-by-activation": (writers.packed(order="by activation"), set(), 0),
    "packed-8-all": (writers.packed(bits=8, group=-1), EIGHT, 0),
    "packed-8-128": (writers.packed(bits=8, group=128), EIGHT, 128),
    "packed-8-32-asymmetric": (writers.packed(bits=8, symmetric=False), set(), 0),
    "bytes-an-output": (writers.bytes_of(), EIGHT, 0),
    "bytes-a-map": (writers.bytes_of(one_scale=True), EIGHT, 0),
    "bytes-32": (writers.bytes_of(group=32), EIGHT, 32),
    "bytes-asymmetric": (writers.bytes_of(symmetric=False), set(), 0),
    "floats-an-output": (
        writers.floats(writers.scheme("float-quantized", "float", 8, strategy="channel"), (1, 0), "weight_scale"),
        set(),
        0,
    ),
    "floats-a-map": (writers.floats(writers.scheme("float-quantized", "float", 8), (0, 0), "weight_scale"), set(), 0),
    "floats-blocks": (
        writers.floats(
            writers.scheme("float-quantized", "float", 8, strategy="block", block_structure=[96, 128]),
            (96, 128),
            "weight_scale",
        ),
        set(),
        0,
    ),
    "fp8-blocks": (writers.fp8(), set(), 0),
    "fp8-uneven-blocks": (writers.fp8((48, 100)), set(), 0),
    "fp8-a-map": (writers.fp8(None), set(), 0),
    "fp8-older-name": (writers.fp8(None, "weight_scale"), set(), 0),
}


def logits_of(model):
    ids = torch.randint(61, (24,), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(ids, torch.arange(24), CausalContext(1, 24))


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_plain_twin(case, tmp_path):
    (settings, write), bits, group_size = CASES[case]
    published, plain = publish(tmp_path, settings, write)
    ours, twin = load_model(published), load_model(plain)
    exact = logits_of(twin)
    assert (logits_of(ours) - exact).abs().max() < 1e-5 * exact.abs().max()
    for layer, plain_layer in zip(ours.layers, twin.layers, strict=True):
        for name in ("qkv", "out", "up", "down"):
            found, expected = getattr(layer, name), getattr(plain_layer, name)
            if bits:  # the integers are those of the file, so that nothing at all is lost
                assert isinstance(found, QuantLinear) and {found.bits} == bits and found.group_size == group_size
                assert torch.equal(found.dequantize(), expected.weight)
            else:
                assert torch.equal(found.weight, expected.weight)
    quant = ours.config.quant
    assert (quant is not None) == bool(bits)
    assert ours.config.variant.startswith(("gptq-", "awq-", "compressed-tensors-", "fp8-"))
    if library() is not None:
        the_kernels_compute_it_as_closely_as_our_own_rounding(published, plain, exact, bits)


def the_kernels_compute_it_as_closely_as_our_own_rounding(published, plain, exact, bits):
    rough = logits_of(load_model(plain, dtype="bfloat16")).float()
    ours = load_network(published, dtype="bfloat16")
    assert isinstance(ours, NativeDecoder)
    ids = torch.randint(61, (24,), generator=torch.Generator().manual_seed(0))
    got = Feeder(ours).feed(ids)
    tolerance = float((rough - exact).abs().mean())  # what bfloat16 in PyTorch is off by
    assert float((got - exact).abs().mean()) < tolerance * (4 if bits else 1.2)
    assert tolerance < 0.05 * float(exact.abs().mean())


@pytest.mark.parametrize("family", ["gemma3_text", "phi3", "glm4", "starcoder2", "olmo2"])
@pytest.mark.parametrize("write", [writers.gptq(), writers.awq(), writers.packed()], ids=["gptq", "awq", "packed"])
def test_families_whose_files_have_other_names_or_wider_maps(family, write, tmp_path):
    """Phi-3 has one map of queries, keys and values, Phi-3 and GLM-4 one of gate and up; GLM-4 turns neighbours."""
    config = tiny_config(family, hidden=128, heads=4, kv_heads=2, inner=256)
    published, plain = publish(
        tmp_path, *write, choose=lambda name: is_map(name) or name.endswith("c_fc.weight"), config=config
    )
    ours, twin = load_model(published), load_model(plain)
    assert (logits_of(ours) - logits_of(twin)).abs().max() < 1e-5 * logits_of(twin).abs().max()
    for layer, plain_layer in zip(ours.layers, twin.layers, strict=True):
        for name in ("qkv", "out", "up", "down"):
            found = getattr(layer, name)
            assert isinstance(found, QuantLinear) and torch.equal(found.dequantize(), getattr(plain_layer, name).weight)


def test_what_becomes_floats_is_logged_once_with_its_cost(tmp_path, caplog):
    published, _ = publish(tmp_path, *writers.gptq(order="by activation"))
    with caplog.at_level(logging.INFO, "outdraft"):
        load_model(published)
    told = [record for record in caplog.records if "gptq" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]
    weights = 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128)  # of two layers
    for words in ("14 weights", "16-bit floats", f"{2 * weights / 1e6:.1f} MB", "outdraft quantize"):
        assert words in told[0].getMessage()


@pytest.mark.parametrize(("symmetric", "level"), [(True, logging.INFO), (False, logging.WARNING)])
def test_integers_are_logged_too(symmetric, level, tmp_path, caplog):
    published, _ = publish(tmp_path, *writers.gptq(symmetric=symmetric))
    with caplog.at_level(logging.INFO, "outdraft"):
        load_model(published)
    (told,) = [record for record in caplog.records if "gptq" in record.getMessage()]
    assert told.levelno == level and "8 maps stay on few bits" in told.getMessage()
    assert ("held on 8" in told.getMessage()) == (not symmetric) and "floats" not in told.getMessage()


def test_maps_may_differ(tmp_path):
    """Some maps are kept, some have wider groups, and one of three that make one of ours has zero points."""
    kinds = {"v_proj": writers.gptq(symmetric=False), "down_proj": writers.gptq(order="by activation")}

    def write(stem, weight):
        if stem.endswith("o_proj"):
            return {"weight": weight}, weight
        return kinds.get(stem.rpartition(".")[2], writers.gptq())[1](stem, weight)

    published, plain = publish(tmp_path, writers.gptq()[0], write)
    ours = load_model(published)
    expected = logits_of(load_model(plain))
    assert (logits_of(ours) - expected).abs().max() < 1e-5 * expected.abs().max()
    layer = ours.layers[1]
    assert isinstance(layer.up, QuantLinear) and layer.up.bits == 4
    assert isinstance(layer.qkv, QuantLinear) and layer.qkv.bits == 8
    assert not isinstance(layer.out, QuantLinear) and not isinstance(layer.down, QuantLinear)
    assert ours.config.quant.bits_at("layers.1.qkv") == 8 and not ours.config.quant.covers("lm_head")


def test_groups_of_several_sizes_divide_into_the_smallest(tmp_path):
    """One scale an output, groups of 64, and groups of 128 (two of them), in one model."""
    kinds = {f"layers.{i}.mlp.down_proj": writers.packed(group=size)[1] for i, size in enumerate((64, 128))}

    def write(stem, weight):
        return kinds.get(stem.removeprefix("model."), writers.packed(group=-1)[1])(stem, weight)

    settings = writers.packed(group=-1)[0]
    for size in (64, 128):
        settings["config_groups"][f"of {size}"] = writers.packed(group=size)[0]["config_groups"]["group_0"]
    published, plain = publish(tmp_path, settings, write)
    ours, twin = load_model(published), load_model(plain)
    assert ours.config.quant == QuantConfig(bits=4, group_size=64, keep=("lm_head",))
    for layer, plain_layer in zip(ours.layers, twin.layers, strict=True):
        for name in ("qkv", "out", "up", "down"):
            assert torch.equal(getattr(layer, name).dequantize(), getattr(plain_layer, name).weight)


def test_activation_settings_are_noted_and_not_used(tmp_path, caplog):
    settings, write = writers.bytes_of()
    settings["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8, "type": "int", "dynamic": False}
    settings["kv_cache_scheme"] = {"num_bits": 8, "type": "float"}

    def with_inputs(stem, weight):
        parts, whole = write(stem, weight)
        return {**parts, "input_scale": torch.ones(1), "output_scale": torch.ones(1)}, whole

    published, plain = publish(tmp_path, settings, with_inputs)
    expected = logits_of(load_model(plain))
    assert (logits_of(load_model(published)) - expected).abs().max() < 1e-5 * expected.abs().max()
    (told,) = [record.getMessage() for record in caplog.records if "compressed-tensors" in record.getMessage()]
    assert "activations are not rounded" in told and "kv_cache_scheme" in told


def test_factors_may_be_powers_of_two_in_a_byte(tmp_path):
    published, plain = publish(tmp_path, *writers.fp8((64, 64)))

    def round_up(tensors):
        for name in [name for name in tensors if name.endswith("weight_scale_inv")]:
            exponents = tensors[name].log2().ceil()
            stem = name.removesuffix("_scale_inv")
            wide = torch.kron(2**exponents, torch.ones(64, 64))
            whole[stem] = tensors[stem].float() * wide
            tensors[name] = (exponents + 127).to(torch.uint8)

    whole = {}
    change_tensors(published, round_up)
    change_tensors(plain, lambda tensors: tensors.update(whole))
    assert len(whole) == 14 and torch.equal(
        load_model(published).layers[0].down.weight, load_model(plain).layers[0].down.weight
    )


@pytest.mark.parametrize("left", [{}, {"lm_head": {"bits": 16, "data_type": "float"}}])
def test_auto_round_says_that_activations_are_not_rounded(left, tmp_path, caplog):
    settings, write = writers.auto_round()
    published, plain = publish(tmp_path, settings | {"act_bits": 8, "extra_config": left}, write)
    expected = logits_of(load_model(plain))
    assert (logits_of(load_model(published)) - expected).abs().max() < 1e-5 * expected.abs().max()
    assert any("act_bits" in record.getMessage() for record in caplog.records)


def test_a_rounded_head_stays_integers(tmp_path):
    published, plain = publish(tmp_path, *writers.gptq(), choose=lambda name: name == "lm_head.weight")
    ours = load_model(published)
    assert isinstance(ours.lm_head, QuantLinear) and not isinstance(ours.layers[0].qkv, QuantLinear)
    assert torch.equal(ours.lm_head.dequantize(), load_model(plain).lm_head.weight)


def test_a_bias_of_zeros_that_no_map_has_is_left(tmp_path):
    published, plain = publish(tmp_path, *writers.gptq())
    name = "model.layers.0.mlp.up_proj.bias"
    change_tensors(published, lambda tensors: tensors.update({name: torch.zeros(256)}))
    expected = logits_of(load_model(plain))
    assert (logits_of(load_model(published)) - expected).abs().max() < 1e-5 * expected.abs().max()
    change_tensors(published, lambda tensors: tensors[name].fill_(0.1))
    with pytest.raises(ModelLoadError, match=r"up_proj\.bias"):
        load_model(published)


def test_half_precision_becomes_bfloat16_which_the_kernels_know(tmp_path):
    published, _ = publish(tmp_path, *writers.gptq())

    def halve(tensors):
        tensors.update({name: one.half() for name, one in tensors.items() if one.dtype == torch.float32})

    change_tensors(published, halve)
    assert open_weights(published).dtype == torch.bfloat16
    assert open_weights(published, "float16").dtype == torch.float16
    assert load_model(published).layers[0].up.dtype == torch.bfloat16


def test_the_text_part_of_a_wrapper(tmp_path):
    published, plain = publish(tmp_path, *writers.gptq())
    expected = logits_of(load_model(plain))
    path = published / "config.json"
    text = json.loads(path.read_text())
    told = text.pop("quantization_config")
    wrapped = {"model_type": "mistral3", "text_config": {**text, "model_type": "llama"}, "quantization_config": told}
    path.write_text(json.dumps(wrapped))
    change_tensors(
        published,
        lambda tensors: [tensors.update({f"language_model.{name}": tensors.pop(name)}) for name in list(tensors)],
    )
    ours = load_model(published)
    assert isinstance(ours.layers[0].up, QuantLinear)
    assert (logits_of(ours) - expected).abs().max() < 1e-5 * expected.abs().max()


def test_what_is_rounded_already_is_not_rounded_again(tmp_path):
    published, _ = publish(tmp_path, *writers.gptq(order="by activation"))
    with pytest.raises(ConfigError, match="gptq-4"):
        load_network(published, rounding=lambda config, native: QuantConfig())
