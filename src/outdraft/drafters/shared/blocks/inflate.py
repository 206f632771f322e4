"""A block network, made to fit the target that `models.remake.inflate` makes of a small one: the same guesses."""

from collections.abc import Callable
from dataclasses import replace

import torch

from outdraft.drafters.shared.blocks.config import BlockConfig
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.features.learn import wider
from outdraft.drafters.shared.learning.inflate import layers_after, widen
from outdraft.models.networks.base import Decoder


@torch.no_grad()
def inflate_blocks(
    net: BlockNet, target: Decoder, make: Callable[[BlockConfig], BlockNet], width: int, depth: int
) -> BlockNet:
    """`target`: the small one. `make`: an empty network of these sizes, with the tokens of `net`."""
    old, layers = net.config, net.config.layers
    config = replace(
        old,
        layers=wider(layers, width),
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        target_hidden_size=old.target_hidden_size * width,
    )
    big = make(config)
    heights = {"kv": [layers.num_kv_heads * layers.head_dim] * 2, "up": [layers.intermediate_size] * 2}
    for name, parameter in big.named_parameters():
        small, part = net.get_parameter(name), name.split(".")[-2]
        if part == "embedding":
            parameter.copy_(small.repeat(1, width))
        elif part == "lm_head":
            parameter.copy_(small.repeat(1, width) / width)
        elif part in ("q_norm", "k_norm"):  # over one head, whose width stays
            parameter.copy_(small)
        else:
            parameter.copy_(widen(small, width, len(old.taps) if part == "fc" else 1, heights.get(part)))
    return big
