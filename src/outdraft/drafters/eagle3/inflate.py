"""The EAGLE-3 network of a bigger target that computes the same (`models/remake/inflate.py`)."""

from dataclasses import replace
from pathlib import Path

import torch

from outdraft.drafters.eagle3.files import load_eagle3, save_eagle3
from outdraft.drafters.eagle3.net import Eagle3Net
from outdraft.drafters.shared.features.inflate import widen_layer, wider
from outdraft.drafters.shared.learning.inflate import layers_after, widen
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import facts_of


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_eagle3(head_dir, facts_of(target))
    old = net.config
    config = replace(
        old,
        layers=wider(old.layers, width),
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        target_hidden_size=old.target_hidden_size * width,
    )
    big = Eagle3Net(config, net.dtype, net.norm.weight.device, net.vocab)
    for name, parameter in big.named_parameters():
        small = net.get_parameter(name)
        if name == "embedding":
            parameter.copy_(small.repeat(1, width))
        elif name == "lm_head.weight":
            parameter.copy_(small.repeat(1, width) / width)
        elif name == "input_norm.weight":
            parameter.copy_(torch.cat([part.repeat(width) for part in small.chunk(len(old.taps))]))
        elif name == "fc.weight":
            parameter.copy_(widen(small, width, len(old.taps)))
        else:
            parameter.copy_(widen_layer(name, small, old.layers, width, states=2 if name == "first.qkv.weight" else 1))
    save_eagle3(big, out_dir)
