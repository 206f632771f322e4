"""A packed layer as bytes: lent it computes the same bits; bytes that are none are refused, and nothing changes."""

import numpy as np
import pytest
import torch

from kernels.test_stack import SHAPES, Feeder, make
from outdraft.kernels.decoder.matrix import Weight
from outdraft.kernels.decoder.stack import Stack
from outdraft.kernels.library import library
from outdraft.models.networks.native import NativeDecoder, shape_of
from outdraft.weights.units import MemoryBlock

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
IDS = torch.arange(9)
# Of the header, in words: mark, window, turns, six norms, then of each matrix kind, outputs, inputs, step, bias, and
# format and outputs of four parts, and their factors.
MARK, WINDOW, TURNS, NORM, KIND, OUTPUTS, INPUTS, STEP, UP = 0, 1, 2, 3, 9, 10, 11, 12, 9 + 2 * 17


def image(stack: Stack, unit: int) -> tuple[MemoryBlock, int]:
    """A unit as bytes, and how many."""
    size = stack.unit_bytes(unit)
    block = MemoryBlock(size)
    stack.write_unit(unit, block.address)
    return block, size


def words(block: MemoryBlock) -> np.ndarray:
    return np.frombuffer(block.memory, dtype=np.int32)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_written_computes_the_same_where_it_lies(shape):
    native = NativeDecoder(make(shape))
    wanted, num_bytes, read = Feeder(native).feed(IDS), native.stack.num_bytes, native.stack.read()
    held = [image(native.stack, unit) for unit in range(3)]
    for unit, (block, size) in enumerate(held):
        native.stack.lend_unit(unit, block.address, size)
    assert torch.equal(Feeder(native).feed(IDS), wanted)
    assert (native.stack.num_bytes, native.stack.read()) == (num_bytes, read)


@pytest.mark.parametrize("unit", [0, 2], ids=["layer", "head"])
@pytest.mark.parametrize(
    ("word", "value"),
    [
        (MARK, 7),
        (WINDOW, -1),
        (TURNS, -2),
        (NORM, 0),
        (KIND, 4),
        (KIND, 5),
        (KIND, -1),
        (OUTPUTS, 1 << 30),
        (OUTPUTS, 0),
        (OUTPUTS, -64),
        (INPUTS, 96),
        (INPUTS, 1 << 30),
        (STEP, 0),
        (STEP, 31),
        (UP + 1, 64),
        (UP + 2, 32),
    ],
)
def test_a_strange_header_is_refused(unit, word, value):
    native = NativeDecoder(make("qwen3"))
    wanted = Feeder(native).feed(IDS)
    block, size = image(native.stack, unit)
    words(block)[word] = value
    with pytest.raises(RuntimeError, match="no packed layer of this model"):
        native.stack.lend_unit(unit, block.address, size)
    assert torch.equal(Feeder(native).feed(IDS), wanted)


def test_a_step_that_does_not_divide_the_inputs_is_refused():
    native = NativeDecoder(make("int4"))  # 64 inputs
    block, size = image(native.stack, 0)
    words(block)[STEP] = 128
    with pytest.raises(RuntimeError, match="no packed layer"):
        native.stack.lend_unit(0, block.address, size)


def test_what_is_cut_short_or_crooked_or_anothers_is_refused():
    native, other = NativeDecoder(make("llama")), NativeDecoder(make("wide heads"))
    block, size = image(native.stack, 0)
    for skipped, length in ((0, size - 64), (0, 64), (0, 0), (32, size)):
        with pytest.raises(RuntimeError, match="cut short"):
            native.stack.lend_unit(0, block.address + skipped, length)
    for unit, stack in ((2, native.stack), (0, other.stack)):  # a layer for the head, a layer of another width
        with pytest.raises(RuntimeError, match="no packed layer of this model"):
            stack.lend_unit(unit, block.address, size)


@pytest.mark.parametrize("unit", [-1, 3])
def test_a_unit_that_is_not_there_is_an_error(unit):
    stack = NativeDecoder(make("llama")).stack
    block, size = image(stack, 0)
    for ask in (
        lambda: stack.unit_bytes(unit),
        lambda: stack.write_unit(unit, block.address),
        lambda: stack.lend_unit(unit, block.address, size),
    ):
        with pytest.raises(RuntimeError, match="native kernels"):
            ask()


def test_a_pass_over_weights_that_are_missing_is_an_error():
    native = NativeDecoder(make("llama"))
    empty = Stack(shape_of(native.config), 2, threads=1)
    with pytest.raises(RuntimeError, match="weights are missing: of the head"):
        empty.logits(torch.zeros(1, 64), norm=True)
    native.stack = empty
    with pytest.raises(RuntimeError, match="weights are missing: of a layer"):
        Feeder(native).feed(IDS)
    with pytest.raises(RuntimeError, match="native kernels"):
        empty.run(torch.zeros(1, 64), [0], torch.zeros(1, 32), torch.zeros(1, 32), [], [2])


def test_a_weight_of_another_size_is_an_error():
    stack = NativeDecoder(make("llama")).stack
    with pytest.raises(RuntimeError, match="64 outputs and 64 inputs stands where the model has 128 and 64"):
        stack.set_head(Weight(bits=16, values=torch.zeros(64, 64, dtype=torch.bfloat16)), torch.ones(64))
