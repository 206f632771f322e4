"""Products with the block formats of GGUF files against the floats that the blocks stand for."""

import pytest
import torch

from outdraft.kernels.decoder.blocks import SPANS, BlockWeight
from outdraft.kernels.decoder.guesser import Guesser, GuessRows
from outdraft.kernels.decoder.matrix import PackedMatrix, Weight
from outdraft.kernels.decoder.stack import Stack, StackShape
from outdraft.kernels.library import KINDS, library
from outdraft.nn.quant.block_linear import on_our_grid
from outdraft.nn.quant.blocks import BLOCKS, dequantize
from outdraft.options.errors import CapabilityError

native = library()
pytestmark = pytest.mark.skipif(native is None, reason="the native kernels are not built here (no C++ compiler)")
kinds = [kind for kind in KINDS if native is not None and native.od_has_kernels(kind.encode())]
_HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2)}
_HALVES |= {"Q5_1": (0, 2), "MXFP4": (), "NVFP4": ()}


def random_rows(name: str, num_out: int, num_in: int, seed: int = 0) -> torch.Tensor:
    """Any bytes, but for scales that are finite and of like size."""
    span, size = SPANS[name]
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (num_out, num_in // span, size), dtype=torch.uint8, generator=generator)
    for at in _HALVES.get(name, (0,)):
        halves = torch.rand(num_out, num_in // span, 1, generator=generator) * 0.02 + 0.001
        halves *= torch.randint(0, 2, halves.shape, generator=generator) * 2 - 1
        raw[:, :, at : at + 2] = halves.half().view(torch.uint8)
    if name == "MXFP4":
        raw[:, :, 0] = 120 + raw[:, :, 0] % 8
    if name == "NVFP4":
        raw[:, :, :4] &= 0x5F
    return raw.flatten(1)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Activations as the kernels round them: bytes with a scale for each 32."""
    parts = x.view(x.shape[0], -1, 32)
    top = parts.abs().amax(-1, keepdim=True)
    scale = torch.where(top > 0, top / 127, torch.ones(()))
    return ((parts * (1 / scale)).round().double() * scale.double()).flatten(1)


def test_the_table_is_the_formats():
    assert {name: (block.weights, block.size) for name, block in BLOCKS.items()} == SPANS


@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize("name", SPANS)
def test_products_and_bits_of_rows(name, kind):
    parts = [(name, random_rows(name, 80, 512)), ("Q8_0", random_rows("Q8_0", 24, 512, 1))]
    bias = torch.randn(104, generator=torch.Generator().manual_seed(2))
    factors = (0.37, 2.5)
    packed = PackedMatrix(BlockWeight(parts=parts, bias=bias, factors=factors))
    weight = torch.cat([by * dequantize(rows, own) for by, (own, rows) in zip(factors, parts, strict=True)]).double()
    x = torch.randn(17, 512, generator=torch.Generator().manual_seed(3)) * torch.logspace(-2, 2, 17)[:, None]
    x[5] = 0
    expected = rounded(x) @ weight.t() + bias.double()
    found = packed.multiply(x, kind=kind, threads=2)
    assert (found - expected).abs().max() < 1e-6 * expected.abs().max()
    alone = torch.cat([packed.multiply(row[None], kind=kind) for row in x])
    for count in (1, 2, 3, 4, 5, 9, 12, 13, 17):
        assert torch.equal(packed.multiply(x[:count], kind=kind), alone[:count])


@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("byte", [0x00, 0x77, 0xFF])  # the least and the largest codes, also of a table
def test_sums_of_the_largest_codes_stay_whole(name, kind, byte):
    drawn = random_rows(name, 16, 256).view(16, -1, SPANS[name][1])
    rows = torch.full_like(drawn, byte)
    for at in _HALVES.get(name, (0,)):
        rows[:, :, at : at + 2] = drawn[:, :, at : at + 2]
    count = {"MXFP4": 1, "NVFP4": 4}.get(name, 0)
    rows[:, :, :count] = drawn[:, :, :count]
    x = torch.ones(2, 256) * torch.tensor([[1.0], [-1.0]])
    found = PackedMatrix(BlockWeight(parts=[(name, rows.flatten(1))])).multiply(x, kind=kind)
    expected = x.double() @ dequantize(rows.flatten(1), name).double().t()
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize(("name", "count", "last"), [("MXFP4", 1, 5), ("NVFP4", 4, 255)])
def test_scales_that_are_no_float16(name, count, last, kind):
    """Powers of two below the normal floats, and all floats of 8 bits: without a sign, and one of them no number."""
    rows = random_rows(name, 16, 256).view(16, -1, SPANS[name][1])
    rows[:, :, :count] = (torch.arange(rows[:, :, :count].numel()) % (last + 1)).view(16, -1, count)
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1)) * (2.0**100 if name == "MXFP4" else 1)
    expected = rounded(x) @ dequantize(rows.flatten(1), name).double().t()
    found = PackedMatrix(BlockWeight(parts=[(name, rows.flatten(1))])).multiply(x, kind=kind)
    assert (found - expected).abs().max() < 1e-6 * expected.abs().max()


@pytest.mark.parametrize("name", SPANS)
def test_a_packed_weight_takes_little_more_than_the_file(name):
    rows = random_rows(name, 128, 512)
    assert PackedMatrix(BlockWeight(parts=[(name, rows)])).num_bytes <= 1.05 * rows.numel()


def test_bytes_that_are_no_weight_are_refused():
    rows = random_rows("Q4_K", 16, 512)
    with pytest.raises(CapabilityError, match="IQ1_S"):
        BlockWeight(parts=[("IQ1_S", rows)])
    with pytest.raises(CapabilityError, match="143 bytes"):
        BlockWeight(parts=[("Q4_K", rows[:, :143])])
    with pytest.raises(CapabilityError, match="one width"):
        BlockWeight(parts=[("Q4_K", rows), ("Q8_0", random_rows("Q8_0", 8, 256))])
    with pytest.raises(CapabilityError, match="1 to 4 parts"):
        BlockWeight(parts=[])
    broken = random_rows("Q4_0", 16, 64)
    broken[3, 1] = 0x7C  # infinite
    with pytest.raises(RuntimeError, match="finite"):
        PackedMatrix(BlockWeight(parts=[("Q4_0", broken)]))


@pytest.mark.parametrize("name", SPANS)
def test_a_guesser_reads_an_embeddings_rows_as_pytorch_does(name):
    rows = random_rows(name, 40, 256, 4)
    stack = stack_with(Weight(bits=16, values=torch.eye(40, 256).bfloat16()))
    expected = dequantize(rows, name, torch.bfloat16)[[3, 39, 0]].float()
    assert torch.equal(states_of(stack, BlockWeight(parts=[(name, rows)])), expected)


@pytest.mark.parametrize("name", [*SPANS, "two parts", "grid of 8", "grid of 4", "floats"])
def test_rows_of_a_tied_head_are_the_embeddings(name):
    """As it was packed, whatever the layout."""
    kind = {"grid of 8": "Q8_0", "grid of 4": "Q4_0", "two parts": "Q6_K", "floats": "Q8_0"}.get(name, name)
    rows = random_rows(kind, 40, 256, 4)
    numbers = dequantize(rows, kind, torch.bfloat16)
    head = BlockWeight(parts=[(kind, rows)])
    if name == "floats":
        head = Weight(bits=16, values=numbers)
    elif name == "two parts":
        more = random_rows("Q4_0", 70, 256, 5)
        head = BlockWeight(parts=[(kind, rows), ("Q4_0", more)])
        numbers = torch.cat((numbers, dequantize(more, "Q4_0", torch.bfloat16)))
    elif name.startswith("grid"):
        values, scales = on_our_grid([(kind, rows)])
        head = Weight(bits=int(name[-1]), values=values, scales=scales, group=32)
    stack = stack_with(head)
    ids = torch.arange(len(numbers)).flip(0)
    assert torch.equal(stack.rows(ids), numbers[ids].float())
    assert torch.equal(states_of(stack, stack), numbers[[3, 39, 0]].float())
    for wrong in (-1, len(numbers)):
        with pytest.raises(RuntimeError, match="does not have"):
            stack.rows(torch.tensor([0, wrong]))


def test_rows_of_a_head_that_has_other_numbers_are_refused():
    rounded_head = Weight(bits=8, values=torch.ones(40, 256, dtype=torch.int8), scales=torch.ones(40, 1))
    with pytest.raises(RuntimeError, match="one scale"):
        stack_with(rounded_head).rows(torch.tensor([0]))
    with pytest.raises(RuntimeError, match="missing"):
        stack_with(None).rows(torch.tensor([0]))
    with pytest.raises(RuntimeError, match="missing"):
        states_of(stack_with(rounded_head), stack_with(None))


def stack_with(head: Weight | BlockWeight | None) -> Stack:
    """Without layers."""
    shape = StackShape(
        hidden=256,
        heads=2,
        kv_heads=1,
        head_dim=32,
        inner=64,
        vocab=40 if head is None else head.num_out if isinstance(head, BlockWeight) else len(head.values),
        rotary=32,
        eps=1e-5,
        scale=0.2,
    )
    stack = Stack(shape, 0, threads=1)
    if head is not None:
        stack.set_head(head, None)
    return stack


def states_of(stack: Stack, table: BlockWeight | Stack) -> torch.Tensor:
    """Of tokens 3, 39 and 0, of which a guesser without layers makes their embeddings."""
    guesser = Guesser(stack, stack, table, num_layers=0, bare_head=True)
    empty = torch.empty(1, 32)
    rows = GuessRows(tokens=[3, 39, 0], positions=[0, 0, 0], spans=[], cos=empty, sin=empty)
    return guesser.feed(rows, [0, 1, 2])[0]
