"""Decoder layers of a drafter, made to fit an inflated target (`shared/learning/inflate.py`)."""

from dataclasses import replace

import torch
from torch import Tensor

from outdraft.drafters.shared.learning.inflate import widen
from outdraft.models.networks.config import ModelConfig


def wider(config: ModelConfig, width: int) -> ModelConfig:
    """The layers' sizes, `width` times."""
    return replace(
        config,
        hidden_size=config.hidden_size * width,
        num_heads=config.num_heads * width,
        num_kv_heads=config.num_kv_heads * width,
        intermediate_size=config.intermediate_size * width,
    )


def widen_layer(name: str, small: Tensor, config: ModelConfig, width: int, *, states: int = 1) -> Tensor:
    """A parameter of a layer of these (small) sizes. `states`: how many states a matrix reads side by side."""
    kind = name.split(".")[-2]
    if kind in ("q_norm", "k_norm"):  # over one head, whose width stays
        return small
    heights = {
        "qkv": [heads * config.head_dim for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads)],
        "up": [config.intermediate_size] * (2 if config.gated_mlp else 1),
    }.get(kind)
    if small.dim() == 1:
        return torch.cat([part.repeat(width) for part in torch.split(small, heights or [len(small)])])
    return widen(small, width, states, heights)
