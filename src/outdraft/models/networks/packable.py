"""Linear maps on their way to the native kernels: floats, integers on our own grid, or a GGUF file's blocks."""

from torch import Tensor

from outdraft.kernels.decoder.blocks import BlockWeight, prefers_blocks
from outdraft.kernels.decoder.matrix import Packable, Weight
from outdraft.nn.linear import LinearMap
from outdraft.nn.quant.block_linear import BlockLinear, on_our_grid, our_bits
from outdraft.nn.quant.linear import QuantLinear


def weight_of(linear: LinearMap) -> Packable:
    """A linear map, ready to be packed."""
    bias = linear.bias.detach().float().contiguous() if linear.bias is not None else None
    if isinstance(linear, QuantLinear):
        return Weight(bits=linear.bits, values=linear.qweight, scales=linear.scales, bias=bias, group=linear.group_size)
    if isinstance(linear, BlockLinear):
        return weight_of_blocks(linear.blocks.held(), bias, linear.blocks.factors)
    return Weight(bits=16, values=linear.matrix().detach().contiguous(), bias=bias)


def weight_of_blocks(held: list[tuple[str, Tensor]], bias: Tensor | None, factors: tuple[float, ...]) -> Packable:
    """Blocks of a file, ready to be packed. factors: of its parts; (): 1.

    Where they are on our own grid they may take its layout. Both give the same bits.
    """
    bits = our_bits(tuple((kind, len(rows)) for kind, rows in held))
    if factors or not bits or prefers_blocks():
        return BlockWeight(parts=held, bias=bias, factors=factors)
    values, scales = on_our_grid(held)
    return Weight(bits=bits, values=values, scales=scales, bias=bias, group=32)
