"""A block network, made to fit the target that `models.remake.inflate` makes of a small one: the same guesses."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from outdraft.drafters.shared.blocks.config import BlockConfig
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.features.learn import wider
from outdraft.drafters.shared.learning.inflate import layers_after, widen
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError


@torch.no_grad()
def inflate_blocks(
    net: BlockNet, target: Decoder, make: Callable[[BlockConfig], BlockNet], width: int, depth: int
) -> BlockNet:
    """`target`: the small one. `make`: an empty network of these sizes, with the tokens of `net`.

    Raises `ConfigError` for a head behind the network's whose sizes follow the network's.
    """
    old, layers = net.config, net.config.layers
    config = replace(
        old,
        layers=wider(layers, width),
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        target_hidden_size=old.target_hidden_size * width,
    )
    big = make(config)
    normed = 1 if target.config.tie_embeddings and net.lm_head is None else width  # a tied head does not divide
    heights = {"kv": [layers.num_kv_heads * layers.head_dim] * 2, "up": [layers.intermediate_size] * 2}
    for name, parameter in big.named_parameters():
        small, stem = net.get_parameter(name), name.removesuffix(".weight").removesuffix(".bias")
        part = stem.rpartition(".")[2]
        if net.correction is not None and name.startswith("correction."):
            part = name.removeprefix("correction.")
            columns, share = net.correction.reads.get(part), width if part in net.correction.embeds else normed
            made = small if columns is None else _wider_columns(small, columns, width, share)
            if made.shape != parameter.shape:
                raise ConfigError(
                    f"inflate: {name} is as wide as the network, and a head is enlarged only where it has a width of "
                    "its own: take width=1"
                )
            parameter.copy_(made)
        elif name == "norm.weight":
            parameter.copy_(small.repeat(width) / (width / normed))
        elif part in ("embedding", "mask"):
            parameter.copy_(small.repeat(*(1,) * (small.dim() - 1), width))
        elif part == "base_kernel":
            parameter.copy_(small.repeat(1, 1, width))
        elif part == "kernel_projection":
            kernels = net.get_parameter(f"{stem.removesuffix(part)}base_kernel").shape[:2].numel()
            parameter.copy_(widen(small, width, 1, [len(small) // kernels] * kernels))
        elif part == "lm_head":
            parameter.copy_(small.repeat(1, width) / width)
        elif part in ("q_norm", "k_norm"):  # over one head, whose width stays
            parameter.copy_(small)
        else:
            parameter.copy_(widen(small, width, len(old.taps) if part == "fc" else 1, heights.get(part)))
    return big


def _wider_columns(small: Tensor, columns: slice, width: int, normed: int) -> Tensor:
    """A map [r, E] of which these columns read states, which are `width / normed` times smaller than they were."""
    states = small[:, columns].repeat(1, width) / normed
    return torch.cat((small[:, : columns.start], states, small[:, columns.stop :]), 1)
