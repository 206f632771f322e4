"""On a real GPU: 4 and 8 bits stay packed, CUDA's layout is what we read, and drafts change no text."""

import pytest
import torch

from lab.gpu.packed import compare_levels, compare_texts, time_products
from outdraft.nn.quant.four_bits import FourBits, in_bytes, read_words
from outdraft.nn.quant.linear import QuantLinear

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("tiles", [2, 4, 8])
def test_the_layout_is_read_back(tiles):
    numbers = torch.randint(0, 16, (24, 64 * tiles), device="cuda")
    words = torch._convert_weight_to_int4pack(in_bytes(numbers), tiles)
    assert torch.equal(read_words(words), numbers)


@pytest.mark.parametrize(("bits", "group_size"), [(b, g) for b in (4, 8) for g in (0, 32, 128)])
def test_products_are_those_of_the_floats(bits, group_size):
    linear = QuantLinear(384, 200, False, torch.bfloat16, torch.device("cuda"), bits=bits, group_size=group_size)
    linear.round(torch.randn(200, 384, device="cuda"))
    whole = linear.dequantize(torch.float64)
    linear.requires_grad_(False).pack()
    assert isinstance(linear.small, FourBits) and linear.qweight.device.type == "cpu"
    x = torch.randn(2 * FourBits.most_rows, 384, device="cuda").bfloat16()
    for count in (1, 9, 33, 2 * FourBits.most_rows):
        want = x[:count].double() @ whole.T
        assert ((linear(x[:count]) - want).abs() / want.std(-1, keepdim=True)).max() < 0.03
    assert linear(x[:0]).shape == (0, 200)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_have_the_bits_that_they_have_alone(bits):
    assert set(time_products(256, 512, bits, 32, torch.device("cuda"))["rows_with_other_bits"].values()) == {0}


@pytest.mark.parametrize("bits", [4, 8])
def test_drafts_change_no_text(bits, tmp_path):
    found = compare_texts(bits, "cuda", 60, tmp_path)
    assert [found[name]["greedy"]["same"] for name in ("none", "ngram", "draft_model")] == [6, 6, 6]


def test_elastic_precision_goes_down_and_up():
    levels = compare_levels("cuda", 40)["levels"]
    assert [one["level"] for one in levels] == ["full", "mixed", "full"] and all(one["same"] for one in levels)
    assert levels[1]["held"] < levels[0]["held"]
