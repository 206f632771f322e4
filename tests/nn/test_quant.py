"""Rounded linear maps: the grid's bounds, the bytes, the map against plain arithmetic, and a whole decoder."""

import pytest
import torch
import torch.nn.functional as F

from outdraft.kernels.decoder import grid
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.quantize import linear_names, mixed_precision, quantize_decoder, quantized_names
from outdraft.nn.context import CausalContext
from outdraft.nn.linear import Linear
from outdraft.nn.quant import QuantConfig, QuantLinear
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import TINY_ARCHITECTURES, random_decoder
from tests.helpers.tiny_families import TINY_FAMILIES, tiny_config, tiny_model

GRIDS = [(8, 0), (8, 32), (4, 0), (4, 32), (4, 64), (4, 128)]


def random_weight(num_out=24, num_in=128, seed=0):
    weight = torch.randn(num_out, num_in, generator=torch.Generator().manual_seed(seed))
    weight[3] = 0  # a channel that is 0 throughout
    weight[5] *= 1e4
    weight[7] *= 1e-30
    return weight


def rounded(weight, bits, group_size, dtype=torch.float32, bias=None):
    num_out, num_in = weight.shape
    linear = QuantLinear(
        num_in, num_out, bias is not None, dtype, torch.device("cpu"), bits=bits, group_size=group_size
    )
    linear.round(weight)
    if bias is not None:
        linear.bias.data.copy_(bias)
    return linear.requires_grad_(False)


@pytest.mark.parametrize(("bits", "group_size"), GRIDS)
def test_no_element_errs_by_more_than_half_a_scale(bits, group_size):
    weight = random_weight()
    linear = rounded(weight, bits, group_size)
    error = grid.grouped((linear.dequantize() - weight).abs(), group_size)  # [out, groups, inputs]
    assert bool((error <= linear.scales[:, :, None] * (0.5 + 1e-5)).all())
    assert float(linear.dequantize()[3].abs().max()) == 0


@pytest.mark.parametrize(("bits", "group_size"), GRIDS)
def test_the_stored_fields_are_those_of_the_layout(bits, group_size):
    linear = rounded(random_weight(), bits, group_size)
    assert linear.qweight.shape == ((24, 128) if bits == 8 else (24, 64))
    assert linear.qweight.dtype == (torch.int8 if bits == 8 else torch.uint8)
    assert linear.scales.shape == (24, 128 // group_size if group_size else 1)
    assert linear.scales.dtype == torch.float32


def test_two_integers_to_a_byte_even_input_in_the_low_half():
    integers = torch.tensor([[-8, 7, 0, -1]], dtype=torch.int8)
    stored = grid.pack(integers, 4)
    assert stored.tolist() == [[0 | 15 << 4, 8 | 7 << 4]]
    assert torch.equal(grid.unpack(stored, 4), integers)


@pytest.mark.parametrize("bits", [8, 4])
def test_packing_loses_nothing(bits):
    low, high = (-127, 127) if bits == 8 else (-8, 7)
    integers = torch.randint(low, high + 1, (5, 64), dtype=torch.int8)
    assert torch.equal(grid.unpack(grid.pack(integers, bits), bits), integers)


@pytest.mark.parametrize(("bits", "group_size"), GRIDS)
def test_rounding_twice_is_rounding_once(bits, group_size):
    once = rounded(random_weight(), bits, group_size)
    twice = rounded(once.dequantize(), bits, group_size)
    assert torch.equal(once.qweight, twice.qweight)
    torch.testing.assert_close(once.dequantize(), twice.dequantize(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_the_map_multiplies_by_what_the_integers_stand_for(dtype, packed):
    bias = torch.randn(24)
    linear = rounded(random_weight(), 4, 32, dtype, bias)
    if packed:
        linear.pack()
    x = torch.randn(9, 128).to(dtype)
    expected = F.linear(x, linear.dequantize().to(dtype), linear.bias)
    torch.testing.assert_close(linear(x), expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)
    again = linear(x, bulk=((0, 4),))
    torch.testing.assert_close(again, expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)


def test_scales_stay_float32_and_copies_are_renewed_when_the_model_moves():
    linear = rounded(random_weight(), 4, 32)
    linear.pack()
    before = linear.scales.clone()
    linear.to(torch.bfloat16)
    assert linear.dtype == torch.bfloat16 and linear.packed is None
    assert linear.scales.dtype == torch.float32 and torch.equal(linear.scales, before)
    assert linear(torch.ones(2, 128, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_gradient_passes_through_to_the_input():
    linear = rounded(random_weight(), 8, 0)
    with torch.inference_mode():
        linear(torch.ones(1, 128))
    x = torch.ones(2, 128, requires_grad=True)
    linear(x).sum().backward()
    torch.testing.assert_close(x.grad[0], linear.dequantize().sum(0))


def logits_of(model: Decoder):
    ids = torch.randint(61, (40,), generator=torch.Generator().manual_seed(0))
    return model(ids, torch.arange(40), CausalContext(1, 40))


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES + TINY_FAMILIES)
def test_a_decoder_on_eight_bits_is_close_to_the_original(architecture):
    model = tiny_model(architecture, hidden=64, dtype=torch.float32)
    eight = quantize_decoder(model, QuantConfig(bits=8, group_size=0, keep=()))
    four = quantize_decoder(model, QuantConfig(bits=4, group_size=0))
    exact, near, far = logits_of(model), logits_of(eight), logits_of(four)
    assert float((near - exact).std() / exact.std()) < 0.05
    assert float((near - exact).std()) < float((far - exact).std())
    assert eight.config.variant == "int8" and four.config.variant == "int4"


def test_what_is_kept_is_the_original():
    model = tiny_model(hidden=64, dtype=torch.float32)
    small = quantize_decoder(model, QuantConfig(bits=8, group_size=0, keep=("lm_head", "layers.0.*", "*.down")))
    assert quantized_names(small) == [f"layers.1.{part}" for part in ("qkv", "out", "up")]
    assert isinstance(small.layers[0].qkv, Linear)
    assert small.embedding.data_ptr() == model.embedding.data_ptr()
    assert torch.equal(small.layers[0].down.weight, model.layers[0].down.weight)
    assert len(linear_names(2)) == 9


def test_a_tied_head_may_be_rounded_and_the_embedding_is_not():
    model = tiny_model("gpt2", hidden=64, dtype=torch.float32)
    small = quantize_decoder(model, QuantConfig(bits=8, group_size=32, keep=("layers.*",)))
    assert quantized_names(small) == ["lm_head"]
    assert torch.equal(small.embedding, model.embedding)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bits": 3}, ("bits=3", "8 or 4")),
        ({"group_size": 48}, ("group_size=48", "32")),
        ({"method": "magic"}, ("method='magic'", "rtn")),
        ({"group_size": 128}, ("group_size=128", "64 inputs", "layers.0.qkv")),
        ({"keep": ("lm_haed",)}, ("lm_haed", "lm_head")),
        ({"keep": ("*",)}, ("'*'", "keep fewer")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_errors_name_the_thing_and_the_cure(options, words):
    model = tiny_model(hidden=64, dtype=torch.float32, exact=False)
    with pytest.raises(ConfigError) as caught:
        quantize_decoder(model, QuantConfig(**options))
    for word in words:
        assert word in str(caught.value)


def test_mixed_precision_keeps_the_ends():
    shape = tiny_config(hidden=64, inner=64, layers=4)
    model = random_decoder(shape, dtype=torch.float32, exact=False)
    middle = [name for name in linear_names(4) if name.startswith(("layers.1.", "layers.2."))]
    assert quantized_names(quantize_decoder(model, mixed_precision(4))) == middle
    with pytest.raises(ConfigError, match="the model has 2"):
        mixed_precision(2)


def test_a_rounded_model_is_not_rounded_again():
    model = tiny_model(hidden=64, dtype=torch.float32, exact=False)
    small = quantize_decoder(model, QuantConfig(bits=8, group_size=0))
    with pytest.raises(ConfigError, match="rounded already"):
        quantize_decoder(small, QuantConfig(bits=4, group_size=0))
