"""The EAGLE network of a bigger target that computes the same (`models/remake/inflate.py`)."""

from dataclasses import replace
from pathlib import Path

import torch

from outdraft.drafters.eagle.net import EagleNet, load_eagle, save_eagle
from outdraft.drafters.shared.learning.inflate import layers_after, widen
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.inflate import inflate_decoder


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_eagle(head_dir, target)
    old = net.config
    config = replace(
        old,
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        hidden_size=old.hidden_size * width,
        num_heads=old.num_heads * width,
        num_kv_heads=old.num_kv_heads * width,
        intermediate_size=old.intermediate_size * width,
    )
    big = EagleNet(config, inflate_decoder(target, width=width), net.join.dtype)
    states = {"fusion.weight": len(old.taps), "join.weight": 2}
    heights = {
        "block.qkv.weight": [heads * old.head_dim for heads in (old.num_heads, old.num_kv_heads, old.num_kv_heads)],
        "block.up.weight": [old.intermediate_size] * 2,
    }
    for name, parameter in big.named_parameters():
        wide = widen(net.get_parameter(name), width, states.get(name, 1), heights.get(name))
        if name == "norm.weight" and target.config.tie_embeddings:
            wide = wide / width  # the head is the embedding, which is repeated and not divided
        parameter.copy_(wide)
    save_eagle(big, out_dir)
