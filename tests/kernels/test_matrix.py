"""Packed products against the PyTorch reference, on ragged random shapes, for every instruction set that runs here."""

import pytest
import torch

from outdraft.kernels.decoder import grid
from outdraft.kernels.decoder.matrix import STEP, PackedMatrix, Weight
from outdraft.kernels.library import KINDS, library
from outdraft.options.errors import CapabilityError

native = library()
pytestmark = pytest.mark.skipif(native is None, reason="the native kernels are not built here (no C++ compiler)")
KINDS_OF_WEIGHT = ((16, False), (8, False), (8, True), (4, True))  # bits, with a scale for each group of inputs
WIDE_STEP = 128  # inputs that the kernels take at once, where groups allow it
kinds = [kind for kind in KINDS if native is not None and native.od_has_kernels(kind.encode())]


def random_weight(bits: int, num_out: int, num_in: int, group: int, bias: bool, seed: int) -> Weight:
    """A weight of about unit gain."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(num_out, num_in, generator=generator) * num_in**-0.5
    extra = torch.randn(num_out, generator=generator) if bias else None
    if bits == 16:
        return Weight(bits=16, values=whole.bfloat16(), bias=extra)
    scales = grid.find_scales(whole, bits, group)
    values = grid.pack(grid.round_to_grid(whole, scales, bits, group), bits)
    return Weight(bits=bits, values=values.contiguous(), scales=scales, bias=extra, group=group)


def random_case(seed: int) -> tuple[Weight, torch.Tensor]:
    """A ragged shape: any number of outputs, inputs in steps of 32, 1 to 64 rows, rows of very different size."""
    generator = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=generator))

    bits, in_groups = KINDS_OF_WEIGHT[seed % 4]
    group = (32, 64, 128)[pick(0, 3)] if in_groups else 0
    num_in = group * pick(1, 5) if group else 32 * pick(1, 12)
    weight = random_weight(bits, pick(1, 300), num_in, group, pick(0, 2) == 0, seed)
    x = torch.randn(pick(1, 65), num_in, generator=generator) * torch.logspace(-3, 3, num_in)[pick(0, num_in)]
    if seed % 7 == 0:
        x[0] = 0
    return weight, x


def multiply_reference(weight: Weight, x: torch.Tensor) -> torch.Tensor:
    """The same product in PyTorch: activations rounded as the kernels round them, sums in float64."""
    if weight.bits == 16:
        rounded, whole = x.bfloat16().double(), weight.values.double()
    else:
        span = weight.num_in
        if weight.bits == 4 or weight.group:
            span = STEP if (weight.group or weight.num_in) % WIDE_STEP else WIDE_STEP
        parts = x.view(x.shape[0], -1, span)  # [R, spans, span]
        top = parts.abs().amax(-1, keepdim=True)
        scale = torch.where(top > 0, top / 127, torch.ones(()))
        rounded = ((parts * (1 / scale)).round().double() * scale.double()).flatten(1)
        whole = grid.times_scales(grid.unpack(weight.values, weight.bits), weight.scales).double()
    out = rounded @ whole.t()
    return (out if weight.bias is None else out + weight.bias.double()).float()


def compare(seeds: range) -> None:
    for seed in seeds:
        weight, x = random_case(seed)
        packed, expected = PackedMatrix(weight), multiply_reference(weight, x)
        scale = float(expected.abs().max()) + 1e-12
        for kind in kinds:
            off = float((packed.multiply(x, kind=kind) - expected).abs().max()) / scale
            assert off < 2e-6, f"seed {seed}, {kind}: {off}"


def test_products_equal_the_reference():
    compare(range(240))


@pytest.mark.slow
def test_products_equal_the_reference_ten_thousand_times():
    compare(range(10_000))


@pytest.mark.parametrize(("bits", "group"), [(16, 0), (8, 0), (8, 32), (8, 64), (8, 128), (4, 32), (4, 64), (4, 128)])
@pytest.mark.parametrize("kind", kinds)
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(bits, group, kind):
    weight = random_weight(bits, 200, 384, group, True, 5)
    packed = PackedMatrix(weight)
    x = torch.randn(64, 384, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([packed.multiply(x[i : i + 1], kind=kind) for i in range(64)])
    for count in range(1, 65):
        assert torch.equal(packed.multiply(x[:count], kind=kind), alone[:count])
    assert torch.equal(packed.multiply(x[5:14], kind=kind, threads=2), alone[5:14])


@pytest.mark.parametrize(("bits", "group"), [(8, 0), (8, 32), (8, 128), (4, 32), (4, 128)])
@pytest.mark.parametrize("kind", kinds)
def test_a_row_too_small_for_a_scale_counts_as_zeros(bits, group, kind):
    packed = PackedMatrix(random_weight(bits, 70, 256, group, False, 6))
    x = torch.randn(20, 256, generator=torch.Generator().manual_seed(2))
    clean = packed.multiply(x, kind=kind)
    x[[0, 7]] *= 1e-38
    out = packed.multiply(x, kind=kind)
    assert float(out[[0, 7]].abs().max()) < 1e-35 and torch.equal(out[1:7], clean[1:7])


@pytest.mark.parametrize("num_in", [64, 640, 8192])  # of the last, fewer rows are multiplied at once
@pytest.mark.parametrize(("bits", "group"), [(16, 0), (8, 0), (8, 32), (4, 128)])
@pytest.mark.parametrize("kind", [kind for kind in kinds if kind != "portable"])
def test_nor_do_they_where_hundreds_of_rows_are_multiplied(bits, group, num_in, kind):
    group = min(group, num_in)
    packed = PackedMatrix(random_weight(bits, 100, num_in, group, True, 5))
    x = torch.randn(300, num_in, generator=torch.Generator().manual_seed(1))
    looked_at = [0, 15, 16, 31, 32, 95, 96, 127, 128, 200, 255, 256, 259, 288, 299]
    alone = {i: packed.multiply(x[i : i + 1], kind=kind)[0] for i in looked_at}
    for count in (33, 97, 129, 260, 289, 300):
        out = packed.multiply(x[:count], kind=kind)
        assert all(torch.equal(out[i], alone[i]) for i in looked_at if i < count), count


@pytest.mark.parametrize(("bits", "group"), [(16, 0), (8, 0), (8, 32), (8, 128), (4, 32), (4, 128)])
@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_has_no_finite_product(bits, group, kind, value):
    """Wherever in the row the one value stands; the rows beside it keep their bits."""
    weight = random_weight(bits, 70, 256, group, True, 6)
    packed = PackedMatrix(weight)
    x = torch.randn(20, 256, generator=torch.Generator().manual_seed(2))
    clean = packed.multiply(x, kind=kind)
    sick = [0, 3, 7, 19]
    for row, place in zip(sick, (0, 129, 255, 31), strict=True):
        x[row, place] = value
    out, expected = packed.multiply(x, kind=kind), multiply_reference(weight, x)
    well = [row for row in range(20) if row not in sick]
    assert torch.equal(out[well], clean[well])
    assert not out[sick].isfinite().any() and not expected[sick].isfinite().any()
    if bits != 16 or value != value:
        assert out[sick].isnan().all()


@pytest.mark.parametrize(
    ("bits", "group", "a_weight"), [(16, 0, 16), (8, 32, 8.5), (8, 128, 8.125), (4, 32, 4.5), (4, 128, 4.125)]
)
def test_a_packed_weight_takes_so_many_bits(bits, group, a_weight):
    packed = PackedMatrix(random_weight(bits, 128, 256, group, False, 2))
    assert packed.num_bytes * 8 == a_weight * 128 * 256


def test_bytes_are_counted_with_what_fills_up_the_last_block_and_with_biases():
    assert PackedMatrix(random_weight(8, 70, 64, 0, False, 2)).num_bytes == 128 * (64 + 4 + 4)
    assert PackedMatrix(random_weight(8, 70, 64, 0, True, 2)).num_bytes == 128 * (64 + 4 + 4 + 4)


def test_the_comparison_notices_a_wrong_scale():
    weight = random_weight(4, 64, 128, 32, False, 3)
    x = torch.randn(3, 128)
    out = PackedMatrix(weight).multiply(x)
    assert weight.scales is not None
    weight.scales[0, 0] *= 1.01
    expected = multiply_reference(weight, x)
    assert float((out - expected).abs().max()) / float(expected.abs().max()) > 2e-6


def test_inputs_must_come_in_steps():
    with pytest.raises(CapabilityError, match="multiple of 32"):
        Weight(bits=16, values=torch.zeros(4, 40, dtype=torch.bfloat16))


@pytest.mark.parametrize("group", [16, 48, 96])
def test_groups_that_the_kernels_do_not_know_are_refused(group):
    with pytest.raises(CapabilityError, match=f"groups of {group}"):
        Weight(bits=8, values=torch.zeros(5, 64, dtype=torch.int8), scales=torch.zeros(5, 4), group=group)


@pytest.mark.parametrize("kind", kinds)
def test_a_signalling_nan_stays_one(kind):
    """Its fraction has low bits alone, which rounding to bfloat16 must not carry into infinity."""
    packed = PackedMatrix(random_weight(16, 70, 256, 0, False, 6))
    x = torch.randn(6, 256, generator=torch.Generator().manual_seed(2))
    x.view(torch.int32)[2, 5] = 0x7F800001
    out = packed.multiply(x, kind=kind)
    assert out[2].isnan().all() and out[[0, 1, 3, 4, 5]].isfinite().all()
