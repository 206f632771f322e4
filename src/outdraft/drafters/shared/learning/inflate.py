"""The parts of a trained head, made to fit the target that `models.inflate` makes of a small one: the same guesses.

channels      k times, as the target's are; a matrix that reads several states (taps; embedding and feature) reads
              k copies of each
exit, taps    "after t layers" becomes the place where the inflated target has done t real layers and the identity
              layers behind them, so that an exit keeps its share of the depth
"""

from dataclasses import replace

import torch
from torch import Tensor

from outdraft.models.networks.config import ModelConfig
from outdraft.models.remake.inflate import spread


def layers_after(done: int, num_layers: int, depth: int) -> int:
    """How many layers of the inflated target end where `done` of `num_layers` did."""
    return sum(layer < done for layer, _ in spread(num_layers, depth))


def widen(small: Tensor, width: int, states: int = 1, heights: list[int] | None = None) -> Tensor:
    """A norm or a bias, or a matrix that reads `states` states side by side and writes parts of these heights."""
    if small.dim() == 1:
        return torch.cat([part.repeat(width) for part in torch.split(small, heights or [len(small)])])
    columns = torch.cat([part.repeat(1, width) for part in small.chunk(states, 1)], 1) / width
    parts = torch.split(columns, heights or [columns.shape[0]])
    return torch.cat([part.repeat(width, 1) for part in parts])


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
    return widen(small, width, states, heights)
