"""Rounded weights on their way to the native kernels: what files must hold of them, and how the kernels take them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from outdraft.kernels.decoder import grid
from outdraft.kernels.decoder.matrix import Packable, Weight
from outdraft.models.networks.packable import weight_of_blocks
from outdraft.nn.quant.block_linear import BlockEmbedding, Blocks
from outdraft.nn.quant.config import QuantConfig


def rounded_tensors(quant: QuantConfig, name: str, num_in: int, num_out: int) -> dict[str, Tensor]:
    """Empty tensors of a linear map, or of "embedding", by our names; none for one that is not rounded."""
    if parts := quant.parts_of(name, num_out):
        blocks = Blocks(parts, num_in, torch.device("meta"))
        return {f"{name}.blocks.{part}": tensor for part, tensor in blocks.named_buffers()}
    if name == "embedding" or not quant.covers(name):
        return {}
    bits, group = quant.bits_at(name), quant.group_size
    grid.require_groups(name, num_in, bits, group)
    stored, kind = (num_in, torch.int8) if bits == 8 else (num_in // 2, torch.uint8)
    groups = num_in // group if group else 1
    return {
        f"{name}.qweight": torch.empty(num_out, stored, dtype=kind, device="meta"),
        f"{name}.scales": torch.empty(num_out, groups, dtype=torch.float32, device="meta"),
    }


def rounded_weight(quant: QuantConfig, name: str, read: Mapping[str, Tensor], bias: Tensor | None) -> Packable:
    """A rounded linear map as it was read."""
    if not (parts := quant.parts_of(name, 0)):
        bits, group = quant.bits_at(name), quant.group_size
        return Weight(bits=bits, values=read[f"{name}.qweight"], scales=read[f"{name}.scales"], bias=bias, group=group)
    held = [(kind, read[f"{name}.blocks.{i}"]) for i, (kind, _) in enumerate(parts)]
    return weight_of_blocks(held, bias, quant.factors_of(name))


def table_of_blocks(quant: QuantConfig, rows: Tensor, dtype: torch.dtype) -> BlockEmbedding:
    """The embedding over its rows, uint8 [V, bytes of a row]."""
    ((kind, _),) = quant.parts_of("embedding", 0)
    return BlockEmbedding.over(kind, rows, dtype)
