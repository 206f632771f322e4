"""4 and 8 bits stay packed through PyTorch's product: here with the CPU's operator, and CUDA's layout by its rule."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from lab.gpu.pair import make_pair
from lab.gpu.rounds import Way, make_engine, started
from outdraft.kernels.decoder import grid
from outdraft.models.files.load import save_model, tensors_of
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.linear import RowTile
from outdraft.nn.quant import QuantConfig, four_bits
from outdraft.nn.quant.block_codes import quantize
from outdraft.nn.quant.block_linear import BlockLinear
from outdraft.nn.quant.four_bits import FourBits, in_bytes, read_words, why_not
from outdraft.nn.quant.linear import QuantLinear
from outdraft.nn.quant.rounded import RoundedMap, tell_floats
from outdraft.testing.tiny import random_decoder, tiny_config

CPU = torch.device("cpu")
BF16 = torch.bfloat16


@pytest.fixture
def packs_here(monkeypatch):
    monkeypatch.setattr(RoundedMap, "packs_on", ("cpu",))


def quantized(num_in, num_out, bits, group_size, *, bias=True, dtype=BF16) -> QuantLinear:
    linear = QuantLinear(num_in, num_out, bias, dtype, CPU, bits=bits, group_size=group_size)
    made = torch.Generator().manual_seed(bits + group_size)
    linear.round(torch.randn(num_out, num_in, generator=made))
    if bias:
        linear.bias.data.copy_(torch.randn(num_out, generator=made))
    return linear.requires_grad_(False)


def rows_of(count, num_in):
    return torch.randn(count, num_in, generator=torch.Generator().manual_seed(count)).to(BF16)


def off(got, want):
    """The largest error, in units of a row's standard deviation."""
    return float(((got.double() - want).abs() / want.std(-1, keepdim=True)).max())


@contextmanager
def counted_rows(monkeypatch) -> Iterator[list[int]]:
    """The rows of each packed product."""
    counted, real = [], FourBits._few
    with monkeypatch.context() as patch:
        patch.setattr(FourBits, "_few", lambda self, x, pairs: counted.append(len(x)) or real(self, x, pairs))
        yield counted


@pytest.mark.parametrize(("bits", "group_size"), [(b, g) for b in (4, 8) for g in (0, 32, 64, 128)])
@pytest.mark.parametrize("num_in", [128, 384])
@pytest.mark.parametrize("count", [1, 9, 200])
def test_the_packed_product_is_that_of_the_floats_within_rounding(bits, group_size, num_in, count, packs_here):
    linear, x = quantized(num_in, 48, bits, group_size), rows_of(count, num_in)
    want = x.double() @ linear.dequantize(torch.float64).T + linear.bias.double()
    linear.pack()
    assert linear.small.is_split == (bits == 8) and linear.small.shape == linear.shape == (48, num_in)
    assert off(linear(x), want) < 0.03
    alone = torch.cat([linear(row[None]) for row in x[:9]])
    assert off(alone, want[:9]) < 0.03


def test_weights_differ_from_the_floats_by_the_rounding_of_scales():
    """What four bits are multiplied by: a scale of 8 bits, where our own files have float32."""
    linear = quantized(256, 64, 4, 32, bias=False)
    small = FourBits.of(*linear.on_grid(), CPU)
    made, whole = torch.cat(list(small._floats())).double(), linear.dequantize(torch.float64)
    error = ((made - whole).abs() / whole.abs().clamp_min(1e-9)).max()
    assert 2**-9 < error < 2**-6.9  # two roundings of at most 2^-8 each
    eye = small.product(torch.eye(256, dtype=BF16)).T.double()
    assert (eye - made).abs().max() <= 2**-8 * made.abs().max()


def test_no_rows():
    assert FourBits.of(*quantized(64, 32, 8, 32).on_grid(), CPU).product(rows_of(0, 64)).shape == (0, 32)


def word_of(stored, tile, step, lane, j, tiles):
    """CUDA's rule: word [n / 8][k / (16 tiles)][lane][j] holds of output n0 = lane // 4 the bytes c = lane % 4, c + 4,
    c + 8 and c + 12 of 16, high halves first."""
    first = (step * tiles + 2 * j) * 8 + lane % 4
    four = [int(stored[8 * tile + lane // 4, first + 4 * i]) for i in range(4)]
    word = sum(half << 4 * at for at, half in enumerate([byte >> 4 for byte in four] + [byte & 15 for byte in four]))
    return word - (1 << 32) if word >> 31 else word


def converted(stored, tiles):
    shape = torch._convert_weight_to_int4pack(stored.to("meta"), tiles).shape
    places = torch.cartesian_prod(*(torch.arange(n) for n in shape)).tolist()
    return torch.tensor([word_of(stored, *place, tiles) for place in places], dtype=torch.int32).view(shape)


@pytest.mark.parametrize("tiles", [2, 4, 8])
def test_the_layout_of_cuda_is_read_back_in_order(tiles):
    numbers = torch.randint(0, 16, (16, 32 * tiles), generator=torch.Generator().manual_seed(tiles))
    stored = in_bytes(numbers)
    assert stored.dtype == torch.uint8 and int(stored[3, 5]) == int(16 * numbers[3, 10] + numbers[3, 11])
    assert torch.equal(read_words(converted(stored, tiles)), numbers)


@pytest.mark.parametrize(("bits", "num_in"), [(4, 96), (4, 192), (8, 128)])
def test_cudas_way_step_by_step(bits, num_in, monkeypatch):
    """Its operators in Python, and pieces of a few outputs: few rows and many are multiplied by the same weights."""
    numbers = {}

    def convert(stored, tiles):
        words = converted(stored, tiles)
        numbers[words.data_ptr()] = torch.stack((stored >> 4, stored & 15), 2).flatten(1)
        return words

    def multiply(x, words, group, pairs):
        assert x.is_contiguous() and pairs.is_contiguous() and pairs.dtype == x.dtype == BF16
        groups = numbers[words.data_ptr()].view(words.shape[0] * 8, -1, group) - 8.0
        scales, zeros = (one.T.unsqueeze(2).float() for one in pairs.unbind(2))
        return (x.float() @ (groups * scales + zeros).bfloat16().float().flatten(1).T).bfloat16()

    linear, x = quantized(num_in, 40, bits, 32, bias=False), rows_of(200, num_in)
    real = torch._convert_weight_to_int4pack
    monkeypatch.setattr(
        torch, "_convert_weight_to_int4pack", lambda w, t: real(w, t) if w.device.type == "meta" else convert(w, t)
    )
    monkeypatch.setattr(torch, "_weight_int4pack_mm", multiply)
    monkeypatch.setattr(four_bits, "_OTHER", "none")
    monkeypatch.setattr(four_bits, "_AT_ONCE", 16 * num_in * (bits // 4))  # of 16 outputs
    small, want = FourBits.of(*linear.on_grid(), CPU), x.double() @ linear.dequantize(torch.float64).T
    assert small.shape == (40, num_in) and [len(one) for one in small._floats()] == [16, 16, 8]
    assert off(small.product(x), want) < 0.03 and off(small.product(x[:9]), want[:9]) < 0.03


def test_what_stays_floats_says_why(packs_here, caplog):
    assert "bfloat16" in why_not((64, 64), torch.float32, CPU)
    assert "16 and 32" in why_not((24, 64), BF16, CPU) and "48 inputs" in why_not((32, 48), BF16, CPU)
    assert "xpu" in why_not((64, 64), BF16, torch.device("xpu"))
    odd, kept = quantized(64, 24, 4, 32), quantized(64, 32, 4, 32)
    for linear in (odd, kept):
        linear.pack()
    assert odd.small is None and kept.small is not None
    assert (
        off(odd(rows_of(3, 64)), rows_of(3, 64).double() @ odd.dequantize(torch.float64).T + odd.bias.double()) < 0.03
    )
    with caplog.at_level(logging.WARNING):
        tell_floats(torch.nn.ModuleList([odd, kept]))
    assert [one.getMessage() for one in caplog.records] == [
        "1 rounded maps are held as floats on cpu, 0 MB: 24 outputs of 64 inputs are no multiples of 16 and 32"
    ]


@pytest.mark.parametrize(("kind", "packs"), [("Q4_0", True), ("Q8_0", True), ("Q4_1", False), ("Q5_0", False)])
def test_blocks_of_a_file_on_our_grid_stay_packed_too(kind, packs, packs_here):
    linear = BlockLinear(64, 32, False, BF16, CPU, parts=((kind, 32),))
    linear.blocks.get_buffer("0").copy_(quantize(torch.randn(32, 64, generator=torch.Generator().manual_seed(1)), kind))
    shared, x = linear.blocks, rows_of(5, 64)
    want = x.double() @ linear.dequantize().double().T
    linear.pack()
    assert (linear.small is not None) == packs and (kind in linear.why_floats) != packs
    assert (linear.blocks is shared) != packs, "an embedding keeps its own"
    assert off(linear(x), want) < 0.03


def test_a_packed_model_is_saved_moved_and_unpacked_as_it_was(packs_here, tmp_path):
    floats = random_decoder(tiny_config(hidden=64, inner=128), dtype=BF16, exact=False, seed=3)
    model = quantize_decoder(floats, QuantConfig(bits=4, group_size=32))
    linear = model.layers[0].get_submodule("mixer.out")
    before = {name: one.clone() for name, one in tensors_of(model).items()}
    assert linear.small is not None and linear.small.num_bytes == linear.qweight.numel() + 4 * linear.scales.numel()
    assert all(torch.equal(one, before[name]) for name, one in tensors_of(model).items())
    save_model(model, tmp_path)
    assert torch.equal(linear.matrix(), grid.times_scales(grid.unpack(linear.qweight, 4), linear.scales).to(BF16))
    model.set_exact(True)
    assert linear.tile is not None
    assert (linear.small is not None) == linear.tile.packed, "a CPU that multiplies bfloat16 has exact tiles of it"
    model.set_exact(False)
    assert linear.small is not None
    model.to(torch.float32)
    assert linear.small is None and linear.scales.dtype == torch.float32


@pytest.mark.parametrize("bits", [4, 8])
def test_drafts_change_no_text_on_the_path_of_a_gpu(bits, packs_here):
    pair = make_pair("tiny", device="cpu", dtype=BF16)
    pair = replace(pair, target=quantize_decoder(pair.target, QuantConfig(bits=bits, group_size=32)))
    assert all(one.small for one in pair.target.modules() if isinstance(one, QuantLinear))
    texts = []
    for depth in (0, 4):
        way = Way(graphs=False, depth=depth)
        engine = make_engine(pair, way)
        with started(engine, way, 60) as seqs:
            while engine.has_work:
                engine.step()
        texts.append(seqs[0].output)
    assert texts[0] == texts[1] and len(set(texts[0])) > 5


@pytest.mark.parametrize(("apart", "rows", "seen"), [(True, 3, [3]), (True, 200, [128, 72]), (False, 3, [32])])
def test_rows_that_do_not_depend_on_each_other_are_not_filled_up(apart, rows, seen, packs_here, monkeypatch):
    monkeypatch.setattr(FourBits, "rows_apart", apart)
    linear, x = quantized(128, 48, 4, 32), rows_of(rows, 128)
    linear.pack()
    linear.tile = RowTile(most=32, least=32, packed=False)
    with counted_rows(monkeypatch) as counted:
        assert torch.equal(linear(x), torch.cat([linear.product(part) for part in x.split(128)]))
    assert counted[: len(seen)] == seen


@pytest.mark.parametrize(("apart", "least"), [(True, 1), (False, 32)])
def test_a_pass_of_packed_weights_has_the_rows_that_it_needs(apart, least, packs_here, monkeypatch):
    monkeypatch.setattr(FourBits, "rows_apart", apart)
    pair = make_pair("tiny", device="cpu", dtype=BF16)
    target = quantize_decoder(pair.target, QuantConfig(bits=4, group_size=32))
    engine = make_engine(replace(pair, target=target), Way(graphs=False, depth=0))
    with started(engine, Way(graphs=False, depth=0), 8), counted_rows(monkeypatch) as counted:
        while engine.has_work:
            engine.step()
    assert set(counted) == {least}
