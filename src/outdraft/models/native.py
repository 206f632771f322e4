"""A decoder's layers on the native kernels: packed once, then one call a pass.

What the kernels know is Llama's shape: RMSNorm, gated SiLU, rotary positions over a bfloat16 cache, with or without
biases, query/key norms, windows. `pack_stack` says None for anything else, and PyTorch goes on doing the work. Hidden
states are float32 between passes, so that a pass that stops and resumes at a layer has the bits of one that does not.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from outdraft.kernels.library import wanted_kind
from outdraft.kernels.matrix import STEP, Weight
from outdraft.kernels.stack import LayerParts, Stack, StackShape
from outdraft.models.block import Block
from outdraft.models.config import ModelConfig
from outdraft.nn.linear import LinearMap
from outdraft.nn.quant.linear import QuantLinear


def can_pack(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernels know this shape, and were built."""
    known = (
        config.norm == "rms"
        and config.gated_mlp
        and config.activation in ("silu", "swish")
        and not config.parallel_residual
        and not config.learned_positions
        and config.rope is not None
        and all(width % STEP == 0 for width in (config.hidden_size, config.intermediate_size, config.head_dim))
        and config.head_dim <= 512
    )
    return known and dtype == torch.bfloat16 and device.type == "cpu" and wanted_kind() is not None


def pack_stack(config: ModelConfig, layers: Sequence[Block], final_norm: nn.Module, head: LinearMap) -> Stack:
    """The whole decoder in the kernels' layout, for PyTorch's present number of threads."""
    assert config.rope is not None
    shape = StackShape(
        hidden=config.hidden_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        inner=config.intermediate_size,
        vocab=config.vocab_size,
        rotary=config.rope.dim,
        eps=config.norm_eps,
        scale=config.head_dim**-0.5,
    )
    stack = Stack(shape, len(layers), threads=torch.get_num_threads(), kind=wanted_kind() or "")
    for index, layer in enumerate(layers):
        parts = LayerParts(
            qkv=_weight(layer.qkv),
            out=_weight(layer.out),
            up=_weight(layer.up),
            down=_weight(layer.down),
            attn_norm=_floats(layer.attn_norm),
            mlp_norm=_floats(layer.mlp_norm),
            q_norm=_floats(layer.q_norm) if layer.q_norm is not None else None,
            k_norm=_floats(layer.k_norm) if layer.k_norm is not None else None,
            window=layer.window or 0,
        )
        stack.set_layer(index, parts)
    stack.set_head(_weight(head), _floats(final_norm))
    return stack


def _weight(linear: LinearMap) -> Weight:
    bias = linear.bias.detach().float().contiguous() if linear.bias is not None else None
    if isinstance(linear, QuantLinear):
        return Weight(
            bits=linear.bits, values=linear.qweight, scales=linear.scales, bias=bias, group=linear.group_size
        )  # fmt: skip
    return Weight(bits=16, values=linear.matrix().detach().contiguous(), bias=bias)


def _floats(norm: nn.Module) -> Tensor:
    weight = norm.weight
    assert isinstance(weight, Tensor)
    return weight.detach().float().contiguous()
