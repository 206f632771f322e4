"""A fresh network at feature level: layers like the target's, and what their weights are at first."""

import torch
from torch import nn

from outdraft.models.networks.config import ModelConfig
from outdraft.nn.rope import RopeConfig


def like_target(
    target: ModelConfig,
    *,
    num_layers: int = 1,
    num_heads: int = 0,
    num_kv_heads: int = 0,
    head_dim: int = 0,
    intermediate_size: int = 0,
    qk_norm: bool = False,
) -> ModelConfig:
    """Llama's layers (Qwen3's with `qk_norm`) of the target's width. A size of 0 is the target's own.

    Positions turn as the target's do, if its whole heads are turned and every text alike; else plainly.
    """
    size = head_dim or target.head_dim
    heads = num_heads or target.num_heads
    kv_heads = num_kv_heads or (target.num_kv_heads if heads % target.num_kv_heads == 0 else heads)
    rope = target.rope if target.rope is not None and target.rope.dim == size else RopeConfig(dim=size)
    if rope.kind == "longrope" or rope.query_growth:
        rope = RopeConfig(dim=size, theta=rope.theta)
    return ModelConfig(
        architecture="qwen3" if qk_norm else "llama", vocab_size=target.vocab_size, hidden_size=target.hidden_size,
        num_layers=num_layers, num_heads=heads, num_kv_heads=kv_heads, head_dim=size,
        intermediate_size=intermediate_size or target.intermediate_size, max_len=target.max_len,
        norm_eps=target.norm_eps, rope=rope, qk_norm=qk_norm,
    )  # fmt: skip


@torch.no_grad()
def begin(net: nn.Module, seed: int) -> None:
    """Norms of 1, matrices normal with 1 / sqrt(inputs), biases of 0: a function of the seed."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in net.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(0 if name.endswith("bias") else 1)
        else:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
