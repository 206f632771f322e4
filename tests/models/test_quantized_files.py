"""Quantized models on disk: bit-equal after a round trip, the documented layout, and clear errors."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft.kernels.library import library
from outdraft.models.files.load import load_model, save_model, tensors_of
from outdraft.models.networks.divergence import compare_distributions
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake.inflate import inflate_decoder
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.context import CausalContext
from outdraft.nn.quant import QuantConfig
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config, tiny_model

FOUR = QuantConfig(bits=4, group_size=32, keep=("lm_head", "*.down"))  # the tiny feed-forward is 48 wide
EIGHT = QuantConfig(bits=8, group_size=0, keep=())
MIXED = QuantConfig(bits=4, group_size=32, keep=("layers.0.*", "lm_head", "layers.1.down"), layer_bits=(("*.qkv", 8),))


def small_model(architecture="llama", config=EIGHT, dtype=torch.float32):
    return quantize_decoder(tiny_model(architecture, dtype=dtype, exact=False), config)


@torch.no_grad()
def logits_of(model):
    ids = torch.randint(61, (24,), generator=torch.Generator().manual_seed(0))
    return model(ids, torch.arange(24), CausalContext(1, 24))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt_neox", "gpt2"])
@pytest.mark.parametrize("config", [FOUR, EIGHT, MIXED], ids=lambda config: config.variant)
def test_saving_and_loading_changes_no_bit(architecture, config, tmp_path):
    model = small_model(architecture, config)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.config.quant == config and again.config.variant == config.variant
    ours, theirs = tensors_of(model), tensors_of(again)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), name
    model.set_exact(True)
    assert torch.equal(logits_of(model), logits_of(again))


def test_the_layout_is_the_documented_one(tmp_path):
    save_model(small_model(config=FOUR, dtype=torch.bfloat16), tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    attention = "model.layers.1.self_attn"
    assert stored[f"{attention}.q_proj.qweight"].shape == (32, 16)
    assert stored[f"{attention}.k_proj.scales"].shape == (16, 1)
    assert stored[f"{attention}.q_proj.qweight"].dtype == torch.uint8
    assert stored[f"{attention}.q_proj.scales"].dtype == torch.float32
    assert stored["model.layers.0.mlp.down_proj.weight"].dtype == stored["lm_head.weight"].dtype == torch.bfloat16
    assert f"{attention}.q_proj.weight" not in stored
    written = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert written == {
        "quant_method": "outdraft",
        "version": 1,
        "bits": 4,
        "group_size": 32,
        "method": "rtn",
        "keep": ["lm_head", "*.down"],
    }


def test_layers_may_have_other_bits(tmp_path):
    save_model(small_model(config=MIXED), tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    kinds = {name: stored[f"model.layers.1.{name}.qweight"].dtype for name in ("self_attn.q_proj", "self_attn.o_proj")}
    assert kinds == {"self_attn.q_proj": torch.int8, "self_attn.o_proj": torch.uint8}
    assert "model.layers.0.self_attn.q_proj.weight" in stored and "model.layers.1.mlp.down_proj.weight" in stored
    written = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert written["layer_bits"] == {"*.qkv": 8}


def test_the_type_of_the_activations_may_be_chosen(tmp_path):
    save_model(small_model(dtype=torch.bfloat16), tmp_path)
    assert load_model(tmp_path).layers[0].qkv.dtype == torch.bfloat16
    whole = load_model(tmp_path, dtype="float32")
    assert whole.layers[0].qkv.dtype == whole.embedding.dtype == torch.float32
    assert whole.layers[0].qkv.scales.dtype == torch.float32


@pytest.fixture
def folder(tmp_path):
    save_model(small_model(), tmp_path)
    return tmp_path


def edit(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= changes
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quant_method": "gptq"}, ("quantization_config", "gptq", "outdraft quantize")),
        ({"quant_method": "bitsandbytes"}, ("bitsandbytes", "outdraft quantize")),
        ({"version": 3}, ("version=3",)),
        ({"bits": 3}, ("bits=3", "8 or 4")),
        ({"group_size": "all"}, ("group_size='all'",)),
        ({"keep": "lm_head"}, ("keep='lm_head'",)),
        ({"layer_bits": {"*.qkv": 2}}, ("layer_bits *.qkv=2", "8 or 4")),
        ({"layer_bits": ["*.qkv"]}, ("layer_bits=['*.qkv']", "table")),
        ({"layer_bits": {"*.qkv": 4}}, ("qweight", "shape")),
        ({"bits": 4}, ("qweight", "shape")),
        ({"blocks": {"lm_head": 1}}, ("blocks={'lm_head': 1}", "table of lists")),
        ({"blocks": {"lm_head": [["Q9_K", 61]]}}, ("blocks lm_head='Q9_K'", "Q4_K")),
        ({"blocks": {"layers.0.qkv": [["Q8_0", 32], ["Q8_0", 32]]}}, ("blocks of layers.0.qkv with (32, 32) outputs",)),
        ({"keep": ["lm_head"]}, ("lacks", "lm_head.weight")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_config_that_we_cannot_honour(folder, changes, words):
    edit(folder, **changes)
    with pytest.raises(ModelLoadError) as caught:
        load_model(folder)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


def test_integers_of_another_type_are_refused(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.mlp.down_proj.qweight"
    tensors[name] = tensors[name].float()
    save_file(tensors, path)
    with pytest.raises(ModelLoadError, match=r"down_proj\.qweight.* is F32, config\.json asks for I8"):
        load_model(folder)


def test_a_lost_scale_shows(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.0.mlp.down_proj.scales"].fill_(float("nan"))
    save_file(tensors, path)
    with pytest.raises(ModelLoadError, match=r"NaN.*down\.scales"):
        load_model(folder)


def test_a_quantized_model_is_not_inflated():
    with pytest.raises(ConfigError, match="int8"):
        inflate_decoder(small_model(), width=2)


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
def test_divergence_of_what_the_kernels_compute():
    model = random_decoder(tiny_config(hidden=128, inner=64), dtype=torch.bfloat16, exact=False)
    windows = torch.randint(61, (4, 30), generator=torch.Generator().manual_seed(0))
    small = quantize_decoder(model, QuantConfig(bits=8, group_size=0))
    weights, whole, byte_rows = (
        compare_distributions(model, variant, windows).kl
        for variant in (small, NativeDecoder(model), NativeDecoder(small))
    )
    assert 0 < whole < weights < byte_rows < 20 * weights


def test_divergence_is_zero_of_itself_and_grows_as_bits_go():
    model = tiny_model(dtype=torch.float32, exact=False)
    windows = torch.randint(61, (2, 30), generator=torch.Generator().manual_seed(0))
    itself = compare_distributions(model, model, windows)
    assert itself.kl == 0 and itself.top1 == 1 and itself.num_tokens == 60
    eight, four = (
        compare_distributions(model, quantize_decoder(model, QuantConfig(bits=bits, group_size=0)), windows)
        for bits in (8, 4)
    )
    assert 0 < eight.kl < four.kl and eight.top1 >= four.top1
