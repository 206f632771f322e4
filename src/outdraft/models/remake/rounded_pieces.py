"""Rounded weights on their way to the native kernels: what the files must hold of them, and how the kernels take them.

Blocks of a GGUF file of types that are our own grid go as integers, the others as floats.
"""

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

from outdraft.kernels.decoder import grid
from outdraft.kernels.decoder.matrix import Weight
from outdraft.nn.quant.block_linear import Blocks, floats_of, on_our_grid, our_bits
from outdraft.nn.quant.config import QuantConfig

_log = logging.getLogger(__name__)


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


def rounded_weight(
    quant: QuantConfig, name: str, read: Mapping[str, Tensor], bias: Tensor | None, dtype: torch.dtype
) -> Weight:
    """A rounded linear map as it was read; floats, where there must be some, are of `dtype`."""
    if not (parts := quant.parts_of(name, 0)):
        bits, group = quant.bits_at(name), quant.group_size
        return Weight(bits=bits, values=read[f"{name}.qweight"], scales=read[f"{name}.scales"], bias=bias, group=group)
    held = [(kind, read[f"{name}.blocks.{i}"]) for i, (kind, _) in enumerate(parts)]
    if not (bits := our_bits(parts)):
        return Weight(bits=16, values=floats_of(held, dtype), bias=bias)
    values, scales = on_our_grid(held)
    return Weight(bits=bits, values=values, scales=scales, bias=bias, group=32)


def table_of_blocks(quant: QuantConfig, read: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    """The embedding as floats [V, D]."""
    ((kind, _),) = quant.parts_of("embedding", 0)
    return floats_of([(kind, read["embedding.blocks.0"])], dtype)


def tell_floats(quant: QuantConfig, name: str) -> None:
    """One line on the blocks of model `name` that the kernels compute as floats."""
    floats = [parts for map_name, parts in quant.blocks if map_name != "embedding" and not our_bits(parts)]
    if floats:
        kinds = sorted({kind for parts in floats for kind, _ in parts})
        _log.warning(
            "%s: the native kernels hold %d maps (%s) as 16-bit floats, which take more memory than the file (they "
            "hold Q8_0 and Q4_0 as integers)",
            name,
            len(floats),
            ", ".join(kinds),
        )


def as_packed(quant: QuantConfig | None) -> QuantConfig | None:
    """Which maps the kernels hold as integers: blocks of the other types are floats there."""
    if quant is None or not quant.blocks:
        return quant
    kept = tuple((name, parts) for name, parts in quant.blocks if our_bits(parts) and name != "embedding")
    return QuantConfig(keep=quant.keep, blocks=kept)
